// Vercel's AI SDK, by each of its three providers: OpenAI's own, the one for compatible servers, and Anthropic's.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, embedMany, generateText, Output, RetryError, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { baseURL, chatModels, key, timeout, words } from './helper.mjs';
import { fault, organisation, received } from './organisation.mjs';

const ways = {
  'openai chat': (apiKey) => createOpenAI({ baseURL, apiKey }).chat,
  'openai responses': (apiKey) => createOpenAI({ baseURL, apiKey }).responses,
  compatible: (apiKey) => createOpenAICompatible({ name: 'sluice', baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true }).chatModel,
  anthropic: (apiKey) => createAnthropic({ baseURL, apiKey }),
};

const caught = (promise) =>
  promise.then(
    () => assert.fail('no error'),
    (error) => error,
  );

for (const [way, make] of Object.entries(ways)) {
  for (const id of chatModels) {
    const name = `${way}: ${id}`;
    const model = () => make(key())(id);

    test(`ai text: ${name}`, { timeout }, async () => {
      const got = await generateText({ model: model(), prompt: '[[tokens=7]] hello', maxOutputTokens: 100 });
      assert.equal(words(got.text), 7);
      assert.equal(got.finishReason, 'stop');
      assert.equal(got.usage.outputTokens, 7);
      assert.ok(got.usage.inputTokens > 0);
    });

    test(`ai stream: ${name}`, { timeout }, async () => {
      const got = streamText({ model: model(), prompt: '[[tokens=20 gap=1ms sse=split]] hello', maxOutputTokens: 100 });
      let text = '';
      let pieces = 0;
      for await (const delta of got.textStream) {
        text += delta;
        pieces++;
      }
      assert.equal(words(text), 20);
      assert.ok(pieces > 1, 'the text came whole');
      assert.equal(await got.finishReason, 'stop');
      assert.equal((await got.usage).outputTokens, 20);
    });

    for (const streamed of [false, true]) {
      test(`ai tools${streamed ? ' in a stream' : ''}: ${name}`, { timeout }, async () => {
        const called = [];
        const ask = {
          model: model(),
          prompt: 'call get_weather',
          maxOutputTokens: 100,
          stopWhen: stepCountIs(3),
          tools: {
            get_weather: tool({
              inputSchema: z.object({ city: z.string() }),
              execute: async ({ city }) => {
                called.push(city);
                return 'sunny';
              },
            }),
          },
        };
        const got = streamed ? streamText(ask) : await generateText(ask);
        assert.ok(await got.text); // of the second step: the result went back
        assert.equal((await got.steps).length, 2);
        assert.deepEqual(called, ['example']);
      });
    }

    test(`ai object: ${name}`, { timeout }, async () => {
      const output = Output.object({ schema: z.object({ kind: z.string(), count: z.number().int() }) });
      const got = await generateText({ model: model(), prompt: 'what is it?', maxOutputTokens: 100, output });
      assert.equal(got.output.kind, 'example');
      assert.equal(got.output.count, 7);
    });

    test(`ai stream that breaks: ${name}`, { timeout }, async () => {
      const errors = [];
      const got = streamText({
        model: model(),
        prompt: '[[tokens=20 after=8 fault=cut]] hello',
        maxOutputTokens: 100,
        onError: ({ error }) => errors.push(error),
      });
      let text = '';
      for await (const delta of got.textStream) text += delta;
      assert.equal(words(text), 8);
      assert.equal(errors.length, 1, 'the end looked like a good one');
    });
  }

  test(`ai errors: ${way}`, { timeout }, async () => {
    const ask = (secret, id) => caught(generateText({ model: make(secret)(id), prompt: 'hello', maxOutputTokens: 9 }));
    for (const [secret, id, status] of [
      ['sk-sluice-wrong', 'chat', 401],
      [key(), 'no-such-model', 404],
    ]) {
      const error = await ask(secret, id);
      assert.ok(APICallError.isInstance(error), String(error));
      assert.equal(error.statusCode, status);
      assert.equal(error.isRetryable, false);
    }
  });
}

test('ai retries what may be retried', { timeout }, async () => {
  const own = await organisation({ alias: 'max_attempts: 1,' });
  for (const upstream of own.upstream) await fault(upstream, { status: 503 });
  const model = ways.compatible(own.secret)(own.model);
  const error = await caught(generateText({ model, prompt: 'hello', maxRetries: 1 }));
  assert.ok(RetryError.isInstance(error), String(error));
  assert.equal(error.errors.length, 2);
  assert.equal(error.errors[0].statusCode, 503);
  assert.equal((await received(own.upstream[0])) + (await received(own.upstream[1])), 2);
});

test('ai embeddings', { timeout }, async () => {
  const openai = createOpenAI({ baseURL, apiKey: key() });
  const compatible = createOpenAICompatible({ name: 'sluice', baseURL, apiKey: key() });
  for (const model of [openai.embeddingModel('embed'), compatible.embeddingModel('embed')]) {
    const got = await embedMany({ model, values: ['one text', 'another'] });
    assert.equal(got.embeddings.length, 2);
    assert.ok(got.embeddings[0].length > 8 && got.embeddings[0].some((x) => x !== 0));
    assert.equal(got.usage.tokens, 4);
  }
});
