// OpenAI's own SDK over the Responses API: from a provider that speaks it, and by way of chat from one that does not.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { app, awaitRecord, caught, chatModels, checkCost, covers } from './helper.mjs';
import { key, theThing, thing, timeout, user, words } from './helper.mjs';
import { fault, organisation } from './organisation.mjs';

const sdk = 'openai\tresponses';

const ask = (model, input, more) => ({ model, input, store: false, ...more });

function checkUsage(usage, output) {
  assert.equal(usage.output_tokens, output);
  assert.ok(usage.input_tokens > 0);
  assert.equal(usage.total_tokens, usage.input_tokens + output);
}

for (const model of chatModels) {
  test(`responses: ${model}`, { timeout }, async () => {
    const got = await app().client.responses.create(ask(model, '[[tokens=7]] hello', { instructions: 'be brief' }));
    assert.equal(got.model, model);
    assert.equal(got.status, 'completed');
    assert.equal(words(got.output_text), 7);
    checkUsage(got.usage, 7);
    checkCost(got.x_gateway);
  });

  for (const prompt of ['[[tokens=20 gap=1ms text=unicode sse=split]]', '[[tokens=20 reasoning=5]]']) {
    test(`responses stream: ${prompt}: ${model}`, { timeout }, covers(sdk, 'streaming', async () => {
      const { client } = app();
      let deltas = '';
      let number = 0;
      const types = [];
      for await (const event of await client.responses.create(ask(model, prompt, { stream: true }))) {
        assert.equal(event.sequence_number, number++);
        types.push(event.type);
        if (event.type === 'response.output_text.delta') deltas += event.delta;
      }
      assert.equal(types[0], 'response.created');
      assert.equal(types.at(-1), 'response.completed');
      assert.equal(words(deltas), 20);
      // The helper puts the same together.
      const got = await client.responses.stream(ask(model, prompt)).finalResponse();
      assert.equal(got.output_text, deltas);
      assert.equal(got.model, model);
      checkUsage(got.usage, prompt.includes('reasoning') ? 25 : 20);
    }));
  }

  for (const streamed of [false, true]) {
    test(`responses tools${streamed ? ' in a stream' : ''}: ${model}`, { timeout }, covers(sdk, 'tools', async () => {
      const { client } = app();
      const tools = [
        zodResponsesFunction({ name: 'get_weather', parameters: z.object({ city: z.string() }) }),
        zodResponsesFunction({ name: 'get_time', parameters: z.object({ zone: z.string() }) }),
      ];
      const input = user('[[reasoning=4]] call get_weather and call get_time');
      const first = ask(model, input, { tools });
      const got = streamed ? await client.responses.stream(first).finalResponse() : await client.responses.parse(first);
      const calls = got.output.filter((item) => item.type === 'function_call');
      assert.deepEqual(
        calls.map((c) => [c.name, c.parsed_arguments]),
        [
          ['get_weather', { city: 'example' }],
          ['get_time', { zone: 'example' }],
        ],
      );
      // Everything goes back as it came, thoughts included.
      const results = calls.map((c) => ({ type: 'function_call_output', call_id: c.call_id, output: 'sunny' }));
      const next = await client.responses.create({ ...first, input: [...input, ...got.output, ...results] });
      assert.equal(next.status, 'completed');
      assert.ok(next.output_text);
    }));
  }

  test(`responses of a schema: ${model}`, { timeout }, covers(sdk, 'structured output', async () => {
    const { client } = app();
    const of = ask(model, 'what is it?', { text: { format: zodTextFormat(thing, 'thing') } });
    assert.deepEqual((await client.responses.parse(of)).output_parsed, theThing);
    assert.deepEqual((await client.responses.stream(of).finalResponse()).output_parsed, theThing);
  }));

  test(`responses cut off at the cap: ${model}`, { timeout }, async () => {
    const got = await app().client.responses.create(ask(model, '[[tokens=30]] hello', { max_output_tokens: 4 }));
    assert.equal(got.status, 'incomplete');
    assert.equal(got.incomplete_details.reason, 'max_output_tokens');
    checkUsage(got.usage, 4);
  });

  test(`responses, cancelled in mid-stream: ${model}`, { timeout }, covers(sdk, 'cancel', async () => {
    const maxTokens = model === 'chat' ? 1922 : 1923; // of no other request: it finds the provider's record
    const more = { max_output_tokens: maxTokens, stream: true };
    let seen = 0;
    for await (const event of await app().client.responses.create(ask(model, '[[tokens=1900 gap=10ms]] hello', more))) {
      if (event.type === 'response.output_text.delta' && ++seen === 3) break; // the SDK aborts the request
    }
    assert.equal((await awaitRecord(maxTokens)).outcome, 'cancelled');
  }));

  for (const broken of ['error-mid', 'truncate', 'cut']) {
    test(`responses: a stream broken by ${broken} has failed: ${model}`, { timeout }, async () => {
      const prompt = `[[tokens=20 fault=${broken} after=8]] hello`;
      let text = '';
      let last;
      for await (const event of await app().client.responses.create(ask(model, prompt, { stream: true }))) {
        if (event.type === 'response.output_text.delta') text += event.delta;
        last = event;
      }
      assert.equal(words(text), 8);
      assert.equal(last.type, 'response.failed');
      assert.ok(last.response.error.code && last.response.error.message);
    });
  }
}

for (const [name, secret, model, more, kind, code, param] of [
  ['wrong key', 'sk-sluice-wrong', 'chat', {}, OpenAI.AuthenticationError, 'invalid_api_key', null],
  ['unknown model', undefined, 'nope', {}, OpenAI.NotFoundError, 'model_not_found', 'model'],
  ['unknown model, stream', undefined, 'nope', { stream: true }, OpenAI.NotFoundError, 'model_not_found', 'model'],
  ['background', undefined, 'chat', { background: true }, OpenAI.BadRequestError, 'invalid_value', 'background'],
  ['stored', undefined, 'chat-anthropic', { store: true }, OpenAI.BadRequestError, 'unsupported_parameter', 'store'],
]) {
  test(`responses error: ${name}`, { timeout }, covers(sdk, 'errors', async () => {
    const { client, sent } = app(secret ?? key());
    const error = await caught(client.responses.create(ask(model, 'hello', more)));
    assert.ok(error instanceof kind, `${error.constructor.name}: ${error.message}`);
    assert.equal(error.code, code);
    assert.equal(error.param, param);
    assert.ok(error.requestID);
    assert.equal(sent.length, 1, 'the SDK repeated it');
  }));
}

test('responses: the SDK repeats what may be repeated', { timeout }, covers(sdk, 'retries', async () => {
  const own = await organisation({ alias: 'max_attempts: 1,' });
  await fault(own.upstream[0], { status: 503 }, 1);
  const { client, sent } = app(own.secret);
  const got = await client.responses.create(ask(own.model, '[[tokens=3]] hello'));
  assert.equal(words(got.output_text), 3);
  assert.deepEqual(
    sent.map((s) => s.status),
    [503, 200],
  );
}));
