import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { app, awaitRecord, caught, claude, covers, timeout, user, words } from './helper.mjs';
import { fault, organisation, received } from './organisation.mjs';

const sdk = 'openai\tchat';

const ask = (model, prompt, most) => ({ model, messages: user(prompt), max_completion_tokens: most });

// read gathers a stream's text; the error that ended it, if one did, stands beside it.
async function read(stream) {
  let text = '';
  try {
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
  } catch (error) {
    return { text, error };
  }
  return { text };
}

test('a rate limit is waited out', { timeout }, covers(sdk, 'retries', async () => {
  const own = await organisation({ limits: '{ tpm: 3000 }' });
  const { client, sent } = app(own.secret);
  await client.chat.completions.create(ask(own.model, '[[tokens=2900]] hello', 2900));
  // About 90 tokens are left, 50 come each second.
  await client.chat.completions.create(ask(own.model, '[[tokens=5]] hello', 300));
  assert.ok(sent.length >= 3, `${sent.length} requests`);
  assert.equal(sent[1].status, 429);
  assert.equal(sent.at(-1).status, 200);
  assert.equal(await received(own.upstream[0]), 2);
  for (const { headers } of sent.filter((s) => s.status === 429)) {
    assert.equal(headers.get('x-should-retry'), 'true');
    assert.ok(headers.get('retry-after') && headers.get('retry-after-ms'));
  }
}));

test('a rate limit is shown to an app that wants no retries', { timeout }, async () => {
  const own = await organisation({ limits: '{ rpm: 1 }' });
  const { client, sent } = app(own.secret);
  await client.chat.completions.create(ask(own.model, 'hello'));
  const error = await caught(client.chat.completions.create(ask(own.model, 'hello'), { maxRetries: 0 }));
  assert.ok(error instanceof OpenAI.RateLimitError);
  assert.equal(error.code, 'key_requests_per_minute');
  assert.equal(error.type, 'rate_limit_error');
  assert.ok(error.headers.get('retry-after'));
  assert.equal(sent.length, 2);
});

test('a reserved budget is retried', { timeout }, async () => {
  const own = await organisation({ budget: '{ monthly: 0.02, hard: true }', alias: 'reserve: cap,' });
  const running = await app(own.secret).client.chat.completions.create({
    ...ask(own.model, '[[tokens=1500 first=10ms gap=1h]] hello', 1500),
    stream: true,
  });
  // What the running stream holds comes back when its caller leaves.
  const { client, sent } = app(own.secret, (status) => status === 429 && running.controller.abort());
  await client.chat.completions.create(ask(own.model, '[[tokens=5]] hello', 800), { maxRetries: 5 });
  assert.equal(sent[0].status, 429);
  assert.equal(sent[0].headers.get('x-should-retry'), 'true');
  assert.ok(sent[0].headers.get('retry-after'));
  assert.equal(sent.at(-1).status, 200);
});

// The three APIs, each by the SDK that is made for it.
const ways = {
  chat: {
    sdk: 'openai\tchat',
    from: OpenAI,
    app,
    call: (client, model, prompt, most) => client.chat.completions.create(ask(model, prompt, most)),
    code: (error) => error.code,
  },
  responses: {
    sdk: 'openai\tresponses',
    from: OpenAI,
    app,
    call: (client, model, input, most) =>
      client.responses.create({ model, input, max_output_tokens: most, store: false }),
    code: (error) => error.code,
  },
  messages: {
    sdk: '@anthropic-ai/sdk\tmessages',
    from: Anthropic,
    app: claude,
    call: (client, model, prompt, most = 50) =>
      client.messages.create({ model, messages: user(prompt), max_tokens: most }),
    code: (error) => error.error.error.details.error_code,
  },
};

// What each SDK makes of each status, and how often it sends what.
const limited = { status: 429, 'retry-after': '10ms' };
for (const [way, { sdk, from, app, call, code }] of Object.entries(ways)) {
  for (const [name, { set }, { model, prompt = 'hello', most }, kind, status, want, times] of [
    ['400', {}, { most: -1 }, 'BadRequestError', 400, 'invalid_value', 1],
    ['403', {}, { model: 'chat' }, 'PermissionDeniedError', 403, 'alias_not_allowed', 1],
    ['404', {}, { model: 'nope' }, 'NotFoundError', 404, 'model_not_found', 1],
    ['413', {}, { prompt: 'x'.repeat(33 << 20) }, 'APIError', 413, 'request_too_large', 1],
    ["the provider's 400", {}, { prompt: '[[status=400 code=bad_thing]]' }, 'BadRequestError', 400, 'bad_thing', 1],
    ["the provider's 401", {}, { prompt: '[[status=401]]' }, 'InternalServerError', 502, 'upstream_misconfigured', 1],
    ["the provider's 429", { set: limited }, {}, 'RateLimitError', 429, 'upstream_rate_limited', 3],
    ["the provider's 503", { set: { status: 503 } }, {}, 'InternalServerError', 503, 'upstream_overloaded', 3],
    ['silence', { set: { fault: 'hang' } }, {}, 'InternalServerError', 504, 'upstream_timeout', 3],
  ]) {
    test(`class of ${name}: ${way}`, { timeout }, covers(sdk, 'errors', async () => {
      const own = await organisation({ alias: 'max_attempts: 1, timeouts: { total: 400ms },' });
      // Both of them: one that was rate limited is left for the other.
      if (set) for (const upstream of own.upstream) await fault(upstream, set);
      const { client, sent } = app(own.secret);
      const error = await caught(call(client, model ?? own.model, prompt, most));
      assert.ok(error instanceof from[kind], `${error.constructor.name}: ${error.message}`);
      assert.equal(error.status, status);
      assert.equal(code(error), want);
      assert.ok(error.requestID);
      assert.equal(error.headers.get('x-should-retry'), String(times > 1));
      assert.equal(sent.length, times);
      if (times > 1) assert.equal((await received(own.upstream[0])) + (await received(own.upstream[1])), times);
    }));
  }
}

for (const [way, { app, call, code, from }] of Object.entries(ways)) {
  test(`an exhausted budget is final: ${way}`, { timeout }, async () => {
    const own = await organisation({ budget: '{ monthly: 0.002, hard: true }' });
    const { client, sent } = app(own.secret);
    for (let served = 0; served < 50; served++) {
      const before = sent.length;
      const error = await call(client, own.model, '[[tokens=20]] hello', 20).then(
        () => undefined,
        (e) => e,
      );
      if (!error) continue;
      assert.ok(served > 0, error.message);
      assert.ok(error instanceof from.RateLimitError, error.message);
      assert.equal(code(error), 'budget_exhausted');
      assert.match(JSON.stringify(error.error), /"resets_at":/);
      if (from === OpenAI) assert.equal(error.type, 'insufficient_quota');
      assert.equal(error.headers.get('x-should-retry'), 'false');
      assert.equal(error.headers.get('retry-after'), null);
      assert.equal(sent.length - before, 1, 'the SDK repeated it');
      assert.equal(await received(own.upstream[0]), served);
      return;
    }
    assert.fail('the budget never ended');
  });
}

for (const [name, set] of Object.entries({
  500: { status: 500 },
  429: { status: 429 },
  'a cut before the head': { fault: 'cut', after: 'head' },
  'an error as the first event': { fault: 'error-first' },
})) {
  test(`failover after ${name}`, { timeout }, async () => {
    const own = await organisation();
    await fault(own.upstream[0], set);
    const { client, sent } = app(own.secret);
    const whole = client.chat.completions.create(ask(own.model, '[[tokens=5]] hello'));
    const { data, response } = await whole.withResponse();
    assert.equal(words(data.choices[0].message.content), 5);
    assert.equal(response.headers.get('x-gw-attempts'), '2');
    assert.equal(response.headers.get('x-gw-deployment'), own.upstream[1]);
    const stream = await client.chat.completions.create({ ...ask(own.model, '[[tokens=5]] hello'), stream: true });
    const { text, error } = await read(stream);
    assert.equal(error, undefined);
    assert.equal(words(text), 5);
    assert.equal(sent.length, 2, 'the SDK repeated a request');
  });
}

for (const f of ['cut', 'reset', 'truncate', 'error-mid', 'hang', 'broken-json']) {
  test(`a stream broken by ${f} is an error`, { timeout }, async () => {
    const own = await organisation({ alias: 'timeouts: { idle: 300ms },' });
    const { client, sent } = app(own.secret);
    const prompt = `[[tokens=20 after=8 fault=${f}]] hello`;
    const { text, error } = await read(await client.chat.completions.create({ ...ask(own.model, prompt), stream: true }));
    assert.ok(error instanceof OpenAI.APIError, `the stream ended as if it were whole: ${error}`);
    assert.ok(words(text) >= 1 && words(text) <= 8, text);
    assert.equal(sent.length, 1, 'nobody may repeat a stream that had begun');
  });
}

test("the SDK's own deadline ends the provider's work", { timeout }, async () => {
  const maxTokens = 1904; // of no other request: it finds the provider's record
  const own = await organisation();
  const { client } = app(own.secret);
  const call = client.chat.completions.create(ask(own.model, '[[first=1h]] hello', maxTokens), {
    timeout: 500,
    maxRetries: 0,
  });
  assert.ok((await caught(call)) instanceof OpenAI.APIConnectionTimeoutError);
  assert.equal((await awaitRecord(maxTokens)).outcome, 'cancelled');
});

test('headers are to be had', { timeout }, async () => {
  const own = await organisation({ limits: '{ rpm: 600, tpm: 60000 }' });
  const { client } = app(own.secret);
  const { response, request_id: id } = await client.chat.completions.create(ask(own.model, 'hello')).withResponse();
  assert.ok(id);
  for (const [name, want] of Object.entries({
    'x-request-id': id,
    'x-gw-deployment': own.upstream[0],
    'x-gw-attempts': '1',
    'x-ratelimit-limit-requests': '600',
    'x-ratelimit-limit-tokens': '60000',
  })) {
    assert.equal(response.headers.get(name), want, name);
  }
  for (const name of [
    'x-gw-config-version',
    'x-gw-budget-remaining',
    'x-ratelimit-remaining-requests',
    'x-ratelimit-remaining-tokens',
    'x-ratelimit-reset-requests',
    'x-ratelimit-reset-tokens',
  ]) {
    assert.ok(response.headers.get(name), name);
  }
  const raw = await client.chat.completions.create(ask(own.model, 'hello')).asResponse();
  assert.equal((await raw.json()).model, own.model);
});
