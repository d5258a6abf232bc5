// Custom tools, which the Responses API has and chat has not everywhere: the SDK's stream helper puts their calls together
// out of the events alone.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { app, chatModels, timeout } from './helper.mjs';

const tools = [
  { type: 'custom', name: 'apply_patch', description: 'takes a patch' },
  {
    type: 'function',
    name: 'get_weather',
    strict: true,
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false },
  },
];

// drained is what the helper saw of a stream, and what it made of it.
async function drained(client, request) {
  const stream = client.responses.stream(request);
  const events = [];
  for await (const event of stream) {
    events.push(event);
  }
  return { events, final: await stream.finalResponse() };
}

for (const model of chatModels) {
  test(`responses, a custom tool: ${model}`, { timeout }, async () => {
    const { client } = app();
    const ask = { model, input: 'call apply_patch and call get_weather', tools, store: false };
    const { events, final } = await drained(client, ask);
    const said = events.filter((e) => e.type === 'response.custom_tool_call_input.delta').map((e) => e.delta);
    assert.equal(said.join(''), 'example');
    for (const { output } of [final, await client.responses.create(ask)]) {
      assert.deepEqual(output.map((item) => item.type), ['custom_tool_call', 'function_call']);
      assert.equal(output[0].input, 'example');
      assert.equal(output[1].arguments, '{"city":"example"}');
      const again = await client.responses.create({
        ...ask,
        input: [
          { role: 'user', content: ask.input },
          ...output.map(({ parsed_arguments, ...item }) => item),
          { type: 'custom_tool_call_output', call_id: output[0].call_id, output: 'done' },
          { type: 'function_call_output', call_id: output[1].call_id, output: 'sunny' },
        ],
      });
      assert.ok(again.output_text);
    }
  });
}
