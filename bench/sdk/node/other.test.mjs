import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { app, caught, checkCost, covers, key, timeout, user } from './helper.mjs';

const sdk = 'openai\tchat';

test('embeddings: the default is base64, of the same numbers as float', { timeout }, covers(sdk, 'embeddings', async () => {
  const { client, sent } = app();
  const ask = { model: 'embed', input: ['one text', 'another'], dimensions: 64 };
  const packed = await client.embeddings.create(ask);
  assert.equal(JSON.parse(sent[0].body).encoding_format, 'base64', 'the SDK no longer asks for base64 by itself');
  const floats = await client.embeddings.create({ ...ask, encoding_format: 'float' });
  for (const got of [packed, floats]) {
    assert.equal(got.model, 'embed');
    assert.equal(got.data.length, 2);
    assert.deepEqual(got.usage, { prompt_tokens: 4, total_tokens: 4 });
    checkCost(got.x_gateway);
  }
  floats.data.forEach((vector, i) => {
    assert.equal(vector.index, i);
    assert.equal(packed.data[i].index, i);
    assert.equal(vector.embedding.length, 64);
    // base64 holds float32, JSON decimals of them: equal at that precision.
    assert.deepEqual(packed.data[i].embedding.map(Math.fround), vector.embedding.map(Math.fround));
    assert.ok(vector.embedding.every((x) => Math.abs(x) <= 1) && vector.embedding.some((x) => x !== 0));
  });
  assert.notDeepEqual(floats.data[0].embedding, floats.data[1].embedding);
}));

test('embeddings: base64 asked for by the app stays a string', { timeout }, covers(sdk, 'embeddings', async () => {
  const { client } = app();
  const ask = { model: 'embed', input: 'one text', dimensions: 8 };
  const packed = await client.embeddings.create({ ...ask, encoding_format: 'base64' });
  const floats = await client.embeddings.create({ ...ask, encoding_format: 'float' });
  const bytes = Buffer.from(packed.data[0].embedding, 'base64');
  assert.equal(bytes.length, 32);
  floats.data[0].embedding.forEach((x, i) => assert.equal(bytes.readFloatLE(4 * i), Math.fround(x)));
}));

test('models: list and retrieve', { timeout }, covers(sdk, 'models', async () => {
  const { client } = app();
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  for (const want of ['chat', 'chat-anthropic', 'embed']) {
    assert.ok(ids.includes(want), `models ${ids} lack ${want}`);
    const model = await client.models.retrieve(want);
    assert.equal(model.id, want);
    assert.equal(model.object, 'model');
  }
  assert.ok(!ids.includes('fake-large'), "a provider's own model name is offered");
}));

const chat = (client, more) => client.chat.completions.create({ model: 'chat', messages: user('hello'), ...more });
const unauthorized = { kind: OpenAI.AuthenticationError, status: 401, code: 'invalid_api_key', param: null };
const notFound = { kind: OpenAI.NotFoundError, status: 404, code: 'model_not_found', param: 'model' };
const badRequest = { kind: OpenAI.BadRequestError, status: 400, code: 'invalid_value', param: 'max_tokens' };

// What the SDK makes of refusals, and that it does not repeat what can never succeed.
for (const [name, want, secret, call] of [
  ['wrong key', unauthorized, 'sk-sluice-wrong', (c) => chat(c)],
  ['wrong key, stream', unauthorized, 'sk-sluice-wrong', (c) => chat(c, { stream: true })],
  ['wrong key, models', unauthorized, 'sk-sluice-wrong', (c) => c.models.list()],
  ['unknown model', notFound, undefined, (c) => chat(c, { model: 'nope' })],
  ['unknown model, stream', notFound, undefined, (c) => chat(c, { model: 'nope', stream: true })],
  ['unknown model, retrieve', notFound, undefined, (c) => c.models.retrieve('nope')],
  ['unknown model, embeddings', notFound, undefined, (c) => c.embeddings.create({ model: 'nope', input: 'text' })],
  ['negative cap', badRequest, undefined, (c) => chat(c, { max_tokens: -1 })],
  ['negative cap, stream', badRequest, undefined, (c) => chat(c, { max_tokens: -1, stream: true })],
]) {
  test(`error: ${name}`, { timeout }, covers(sdk, 'errors', async () => {
    const { client, sent } = app(secret ?? key());
    const error = await caught(call(client));
    assert.ok(error instanceof want.kind, `${error.constructor.name}: ${error.message}`);
    assert.equal(error.status, want.status);
    assert.equal(error.code, want.code);
    assert.equal(error.param, want.param);
    assert.equal(error.type, want.status === 401 ? 'authentication_error' : 'invalid_request_error');
    assert.equal(error.headers.get('x-should-retry'), 'false');
    assert.ok(error.requestID);
    assert.equal(sent.length, 1, 'the SDK repeated the request');
  }));
}
