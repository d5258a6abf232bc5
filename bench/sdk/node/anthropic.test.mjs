// Anthropic's own SDK: the Messages dialect, from a provider that speaks it and from one that does not.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
import { z } from 'zod';
import { awaitRecord, caught, chatModels, claude as app, covers, key } from './helper.mjs';
import { theThing, thing, timeout, user, words } from './helper.mjs';
import { fault, organisation, received } from './organisation.mjs';

const sdk = '@anthropic-ai/sdk\tmessages';

const ask = (model, prompt, more) => ({ model, max_tokens: 100, messages: user(prompt), ...more });
const schema = (property) => ({
  type: 'object',
  properties: { [property]: { type: 'string' } },
  required: [property],
  additionalProperties: false,
});
const tools = [
  { name: 'get_weather', input_schema: schema('city') },
  { name: 'get_time', input_schema: schema('zone') },
];

for (const model of chatModels) {
  test(`messages: ${model}`, { timeout }, async () => {
    const got = await app().client.messages.create(ask(model, '[[tokens=7]] hello'));
    assert.equal(got.model, model);
    assert.equal(got.stop_reason, 'end_turn');
    assert.equal(words(got.content[0].text), 7);
    assert.equal(got.usage.output_tokens, 7);
    assert.ok(got.usage.input_tokens > 0);
  });

  test(`messages stream: ${model}`, { timeout }, covers(sdk, 'streaming', async () => {
    const stream = app().client.messages.stream(ask(model, '[[tokens=20 gap=1ms sse=split]] hello'));
    let deltas = '';
    stream.on('text', (text) => (deltas += text));
    const got = await stream.finalMessage();
    assert.equal(got.model, model);
    assert.equal(got.stop_reason, 'end_turn');
    assert.equal(got.content[0].text, deltas);
    assert.equal(words(deltas), 20);
    assert.equal(got.usage.output_tokens, 20);
  }));

  test(`messages cut off at the cap: ${model}`, { timeout }, async () => {
    const got = await app().client.messages.create(ask(model, '[[tokens=30]] hello', { max_tokens: 4 }));
    assert.equal(got.stop_reason, 'max_tokens');
    assert.equal(got.usage.output_tokens, 4);
  });

  for (const streamed of [false, true]) {
    test(`messages tools${streamed ? ' in a stream' : ''}: ${model}`, { timeout }, covers(sdk, 'tools', async () => {
      const { client } = app();
      const first = ask(model, 'call get_weather and call get_time', { tools });
      const got = streamed ? await client.messages.stream(first).finalMessage() : await client.messages.create(first);
      const calls = got.content.filter((b) => b.type === 'tool_use');
      assert.equal(got.stop_reason, 'tool_use');
      assert.deepEqual(
        calls.map((c) => [c.name, c.input]),
        [
          ['get_weather', { city: 'example' }],
          ['get_time', { zone: 'example' }],
        ],
      );
      const results = calls.map((c) => ({ type: 'tool_result', tool_use_id: c.id, content: 'sunny' }));
      const history = [
        ...first.messages,
        { role: 'assistant', content: got.content },
        { role: 'user', content: results },
      ];
      const next = await client.messages.create({ ...first, messages: history });
      assert.equal(next.stop_reason, 'end_turn');
      assert.ok(next.content[0].text);
    }));
  }

  for (const stream of [false, true]) {
    const kind = stream ? ' in a stream' : '';
    test(`messages tool runner${kind}: ${model}`, { timeout }, covers(sdk, 'tool runner', async () => {
      const { client, sent } = app();
      const asked = [];
      const weather = betaZodTool({
        name: 'get_weather',
        description: 'says how the weather is',
        inputSchema: z.object({ city: z.string() }),
        run: ({ city }) => {
          asked.push(city);
          return 'sunny';
        },
      });
      const runner = client.beta.messages.toolRunner(ask(model, 'call get_weather', { tools: [weather], stream }));
      const last = await runner.runUntilDone();
      assert.equal(last.stop_reason, 'end_turn');
      assert.deepEqual(asked, ['example']);
      assert.equal(sent.length, 2);
    }));
  }

  test(`messages of a schema: ${model}`, { timeout }, covers(sdk, 'structured output', async () => {
    const { client } = app();
    const of = ask(model, 'what is it?', { output_config: { format: zodOutputFormat(thing) } });
    assert.deepEqual((await client.messages.parse(of)).parsed_output, theThing);
    assert.deepEqual((await client.messages.stream(of).finalMessage()).parsed_output, theThing);
  }));

  test(`messages thinking: ${model}`, { timeout }, covers(sdk, 'thinking', async () => {
    const { client } = app();
    const thinking = { type: 'enabled', budget_tokens: 2048 };
    const first = ask(model, '[[tokens=5 reasoning=4]] hello', { max_tokens: 4000, thinking });
    const stream = client.messages.stream(first);
    let thoughts = '';
    stream.on('thinking', (delta) => (thoughts += delta));
    for (const got of [await client.messages.create(first), await stream.finalMessage()]) {
      assert.equal(got.usage.output_tokens, 9);
      assert.equal(words(got.content.at(-1).text), 5);
      // OpenAI's models keep what they think to themselves.
      if (model === 'chat-anthropic') {
        assert.equal(got.content[0].type, 'thinking');
        assert.equal(got.content[0].thinking, thoughts);
        assert.ok(thoughts && got.content[0].signature);
      }
      const history = [...first.messages, { role: 'assistant', content: got.content }, ...user('[[tokens=3]] and then?')];
      const next = await client.messages.create({ ...first, messages: history });
      assert.equal(words(next.content.at(-1).text), 3);
    }
  }));

  test(`messages count of tokens: ${model}`, { timeout }, covers(sdk, 'token counting', async () => {
    const { client } = app();
    const of = { model, messages: user('[[tokens=3]] one two three four'), system: 'be brief' };
    const count = await client.messages.countTokens(of);
    assert.equal(count.input_tokens, (await client.messages.create({ ...of, max_tokens: 9 })).usage.input_tokens);
  }));

  test(`messages, aborted before the answer: ${model}`, { timeout }, covers(sdk, 'cancel', async () => {
    const maxTokens = model === 'chat' ? 1920 : 1921; // of no other request: it finds the provider's record
    const { client, sent } = app();
    const call = client.messages.create(ask(model, '[[first=1h]] hello', { max_tokens: maxTokens }), {
      signal: AbortSignal.timeout(300),
    });
    assert.ok((await caught(call)) instanceof Anthropic.APIUserAbortError);
    assert.deepEqual(sent.map((s) => s.status), [undefined], 'an answer came');
    assert.equal((await awaitRecord(maxTokens)).outcome, 'cancelled');
  }));

  test(`messages, cancelled in mid-stream: ${model}`, { timeout }, covers(sdk, 'cancel', async () => {
    const maxTokens = model === 'chat' ? 1905 : 1906; // of no other request: it finds the provider's record
    const more = { max_tokens: maxTokens, stream: true };
    const stream = await app().client.messages.create(ask(model, '[[tokens=1900 gap=10ms]] hello', more));
    let seen = 0;
    for await (const event of stream) {
      if (event.type === 'content_block_delta' && ++seen === 3) break; // the SDK aborts the request
    }
    assert.equal((await awaitRecord(maxTokens)).outcome, 'cancelled');
  }));
}

test('messages: errors are of the SDK’s classes, and not repeated', { timeout }, covers(sdk, 'errors', async () => {
  for (const [secret, request, kind, type] of [
    ['sk-sluice-wrong', ask('chat', 'hello'), Anthropic.AuthenticationError, 'authentication_error'],
    [key(), ask('no-such-model', 'hello'), Anthropic.NotFoundError, 'not_found_error'],
    [key(), ask('chat', 'hello', { max_tokens: -1 }), Anthropic.BadRequestError, 'invalid_request_error'],
    [key(), ask('chat', 'hello', { stream: true, max_tokens: -1 }), Anthropic.BadRequestError, 'invalid_request_error'],
  ]) {
    const { client, sent } = app(secret);
    const error = await caught(client.messages.create(request));
    assert.ok(error instanceof kind, error.message);
    assert.equal(error.error.type, 'error');
    assert.equal(error.error.error.type, type);
    assert.equal(sent.length, 1, 'the SDK repeated it');
    assert.equal(sent[0].headers.get('x-should-retry'), 'false');
  }
}));

test('messages: a rate limit is waited out', { timeout }, covers(sdk, 'retries', async () => {
  const own = await organisation({ limits: '{ tpm: 3000 }' });
  const { client, sent } = app(own.secret);
  await client.messages.create(ask(own.model, '[[tokens=2900]] hello', { max_tokens: 2900 }));
  await client.messages.create(ask(own.model, '[[tokens=5]] hello', { max_tokens: 300 }));
  assert.equal(sent[1].status, 429);
  assert.equal(sent.at(-1).status, 200);
}));

for (const model of chatModels) {
  test(`messages: a stream that breaks is an error, not an end: ${model}`, { timeout }, async () => {
    const stream = app().client.messages.stream(ask(model, '[[tokens=20 after=8 fault=cut]] hello'));
    let text = '';
    stream.on('text', (delta) => (text += delta));
    const error = await caught(stream.finalMessage());
    assert.ok(error instanceof Anthropic.APIError, String(error));
    assert.equal(words(text), 8);
  });
}

test('messages: a failing deployment is passed over', { timeout }, async () => {
  const own = await organisation();
  await fault(own.upstream[0], { status: 503 });
  const { client, sent } = app(own.secret);
  const got = await client.messages.create(ask(own.model, '[[tokens=3]] hello'));
  assert.equal(words(got.content[0].text), 3);
  assert.equal(sent.length, 1);
  assert.deepEqual(await Promise.all(own.upstream.map(received)), [1, 1]);
});

test('messages: the aliases are listed as models', { timeout }, covers(sdk, 'models', async () => {
  const { client } = app();
  const ids = [];
  for await (const model of client.models.list()) {
    assert.deepEqual([model.type, model.display_name], ['model', model.id]);
    assert.deepEqual(await client.models.retrieve(model.id), model);
    ids.push(model.id);
  }
  for (const want of chatModels) assert.ok(ids.includes(want), `models ${ids} lack ${want}`);
  const error = await caught(client.models.retrieve('nope'));
  assert.ok(error instanceof Anthropic.NotFoundError);
  assert.ok(error.requestID);
}));
