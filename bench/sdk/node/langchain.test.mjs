// LangChain, by its packages for OpenAI and for Anthropic.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ChatAnthropic } from '@langchain/anthropic';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { z } from 'zod';
import { awaitRecord, baseURL, caught, chatModels, covers, key, theThing, thing, timeout, words } from './helper.mjs';
import { fault, organisation, received } from './organisation.mjs';

const openai = (model, apiKey = key(), more) =>
  new ChatOpenAI({ model, apiKey, maxTokens: 100, configuration: { baseURL }, ...more });

const ways = {
  openai,
  responses: (model, apiKey, more) => openai(model, apiKey, { useResponsesApi: true, ...more }),
  anthropic: (model, apiKey = key(), more) =>
    new ChatAnthropic({ model, apiKey, maxTokens: 100, anthropicApiUrl: baseURL.replace(/\/v1$/, ''), ...more }),
};

const sdks = {
  openai: '@langchain/core, @langchain/openai\tchat',
  responses: '@langchain/core, @langchain/openai\tresponses',
  anthropic: '@langchain/core, @langchain/anthropic\tmessages',
};

let capOf = 0;

const weather = tool(() => 'sunny', {
  name: 'get_weather',
  description: 'says how the weather is',
  schema: z.object({ city: z.string() }),
});

for (const [way, make] of Object.entries(ways)) {
  for (const id of chatModels) {
    test(`langchain invoke: ${way}: ${id}`, { timeout }, async () => {
      const got = await make(id).invoke('[[tokens=7]] hello');
      assert.equal(words(got.text), 7);
      assert.equal(got.usage_metadata.output_tokens, 7);
      assert.ok(got.usage_metadata.input_tokens > 0);
    });

    test(`langchain stream: ${way}: ${id}`, { timeout }, covers(sdks[way], 'streaming', async () => {
      let whole;
      let pieces = 0;
      for await (const chunk of await make(id).stream('[[tokens=20 gap=1ms sse=split]] hello')) {
        whole = whole ? whole.concat(chunk) : chunk;
        pieces++;
      }
      assert.equal(words(whole.text), 20);
      assert.ok(pieces > 2, 'the text came whole');
      // LangChain adds what message_start says, which the provider's own begins with, to the total at the end.
      const first = way === 'anthropic' && id === 'chat-anthropic' ? 1 : 0;
      assert.equal(whole.usage_metadata.output_tokens, 20 + first);
    }));

    test(`langchain tools: ${way}: ${id}`, { timeout }, covers(sdks[way], 'tools', async () => {
      const model = make(id).bindTools([weather]);
      const ask = { role: 'user', content: 'call get_weather' };
      const got = await model.invoke([ask]);
      assert.deepEqual(
        got.tool_calls.map((c) => [c.name, c.args]),
        [['get_weather', { city: 'example' }]],
      );
      const result = await weather.invoke(got.tool_calls[0]);
      const next = await model.invoke([ask, got, result]);
      assert.ok(next.text);
      assert.equal(next.tool_calls.length, 0);
    }));

    test(`langchain tools in a stream: ${way}: ${id}`, { timeout }, covers(sdks[way], 'tools', async () => {
      let whole;
      for await (const chunk of await make(id).bindTools([weather]).stream('call get_weather')) {
        whole = whole ? whole.concat(chunk) : chunk;
      }
      assert.deepEqual(
        whole.tool_calls.map((c) => [c.name, c.args]),
        [['get_weather', { city: 'example' }]],
      );
    }));

    test(`langchain structured output: ${way}: ${id}`, { timeout }, covers(sdks[way], 'structured output', async () => {
      for (const method of ['jsonSchema', 'functionCalling']) {
        const model = make(id).withStructuredOutput(thing, { name: 'thing', method });
        assert.deepEqual(await model.invoke('what is it?'), theThing, method);
      }
    }));

    test(`langchain cancel: ${way}: ${id}`, { timeout }, covers(sdks[way], 'cancel', async () => {
      const maxTokens = 1940 + capOf++; // of no other request: it finds the provider's record
      let pieces = 0;
      for await (const chunk of await make(id, key(), { maxTokens }).stream('[[tokens=1900 gap=10ms]] hello')) {
        if (chunk.text && ++pieces === 3) break;
      }
      assert.equal((await awaitRecord(maxTokens)).outcome, 'cancelled');
    }));
  }

  test(`langchain errors: ${way}`, { timeout }, covers(sdks[way], 'errors', async () => {
    for (const [id, secret, status] of [
      ['chat', 'sk-sluice-wrong', 401],
      ['no-such-model', key(), 404],
    ]) {
      const error = await caught(make(id, secret).invoke('hello'));
      assert.equal(error.status, status, String(error));
    }
  }));

  test(`langchain retries what may be retried: ${way}`, { timeout }, covers(sdks[way], 'retries', async () => {
    const own = await organisation({ alias: 'max_attempts: 1,' });
    for (const upstream of own.upstream) await fault(upstream, { status: 503 });
    const error = await caught(make(own.model, own.secret, { maxRetries: 1 }).invoke('hello'));
    assert.equal(error.status, 503, String(error));
    assert.equal((await received(own.upstream[0])) + (await received(own.upstream[1])), 2);
  }));
}

test('langchain embeddings', { timeout }, covers(sdks.openai, 'embeddings', async () => {
  const model = new OpenAIEmbeddings({ model: 'embed', apiKey: key(), configuration: { baseURL } });
  const vectors = await model.embedDocuments(['one text', 'another']);
  assert.equal(vectors.length, 2);
  assert.ok(vectors[0].length > 8 && vectors[0].some((x) => x !== 0));
  assert.deepEqual(await model.embedQuery('one text'), vectors[0]);
}));
