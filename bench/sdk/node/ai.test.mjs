// Vercel's AI SDK, by each of its three providers: OpenAI's own, the one for compatible servers, and Anthropic's.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, embedMany, generateText, Output, RetryError, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { awaitRecord, baseURL, caught, chatModels, covers, key } from './helper.mjs';
import { theThing, thing, timeout, user, words } from './helper.mjs';
import { fault, organisation, received } from './organisation.mjs';

const openai = (apiKey) => createOpenAI({ baseURL, apiKey });
const compatible = (apiKey) =>
  createOpenAICompatible({ name: 'sluice', baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true });

const ways = {
  'openai chat': (apiKey) => openai(apiKey).chat,
  'openai responses': (apiKey) => openai(apiKey).responses,
  compatible: (apiKey) => compatible(apiKey).chatModel,
  anthropic: (apiKey) => createAnthropic({ baseURL, apiKey }),
};

const sdks = {
  'openai chat': 'ai, @ai-sdk/openai\tchat',
  'openai responses': 'ai, @ai-sdk/openai\tresponses',
  compatible: 'ai, @ai-sdk/openai-compatible\tchat',
  anthropic: 'ai, @ai-sdk/anthropic\tmessages',
};

let capOf = 0;

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

    test(`ai stream: ${name}`, { timeout }, covers(sdks[way], 'streaming', async () => {
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
    }));

    for (const streamed of [false, true]) {
      test(`ai tools${streamed ? ' in a stream' : ''}: ${name}`, { timeout }, covers(sdks[way], 'tools', async () => {
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
      }));
    }

    test(`ai object: ${name}`, { timeout }, covers(sdks[way], 'structured output', async () => {
      const output = Output.object({ schema: thing });
      const ask = { model: model(), prompt: 'what is it?', maxOutputTokens: 100, output };
      assert.deepEqual((await generateText(ask)).output, theThing);
      const streamed = streamText(ask);
      let last;
      for await (const partial of streamed.partialOutputStream) last = partial;
      assert.deepEqual(last, theThing);
      assert.deepEqual(await streamed.output, theThing);
    }));

    test(`ai documents: ${name}`, { timeout }, covers(sdks[way], 'documents', async () => {
      const content = [
        { type: 'text', text: '[[tokens=3]] what is it?' },
        { type: 'image', image: new Uint8Array(Buffer.from('89504e470d0a1a0a', 'hex')) },
        { type: 'file', mediaType: 'application/pdf', filename: 'a.pdf', data: new Uint8Array(Buffer.from('%PDF-1.7')) },
      ];
      const got = await generateText({ model: model(), maxOutputTokens: 50, messages: [{ role: 'user', content }] });
      assert.equal(words(got.text), 3);
      assert.ok(got.usage.inputTokens >= 128, `${got.usage.inputTokens} tokens: the provider counts 64 for each`);
    }));

    test(`ai cancel: ${name}`, { timeout }, covers(sdks[way], 'cancel', async () => {
      const maxTokens = 1930 + capOf++; // of no other request: it finds the provider's record
      const leave = new AbortController();
      const prompt = '[[tokens=1900 gap=10ms]] hello';
      const got = streamText({ model: model(), prompt, maxOutputTokens: maxTokens, abortSignal: leave.signal });
      let pieces = 0;
      const kinds = [];
      for await (const part of got.fullStream) {
        kinds.push(part.type);
        if (part.type === 'text-delta' && ++pieces === 3) leave.abort();
      }
      assert.equal(kinds.at(-1), 'abort');
      assert.equal((await awaitRecord(maxTokens)).outcome, 'cancelled');
    }));

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

  // What is thought comes apart from the answer, whole and in a stream, and goes back with it.
  const thinking = {
    anthropic: { anthropic: { thinking: { type: 'enabled', budgetTokens: 2048 } } },
    'openai responses': { openai: { store: false, include: ['reasoning.encrypted_content'] } },
    compatible: {},
  }[way];
  if (thinking) {
    test(`ai thinking: ${way}`, { timeout }, covers(sdks[way], 'thinking', async () => {
      const model = make(key())('chat-anthropic');
      const messages = user('[[tokens=5 reasoning=4]] hello');
      const ask = { model, messages, maxOutputTokens: 3000, providerOptions: thinking };
      const got = await generateText(ask);
      assert.equal(words(got.reasoningText), 4);
      assert.equal(words(got.text), 5);
      const streamed = streamText(ask);
      assert.equal(await streamed.reasoningText, got.reasoningText);
      const history = [...messages, ...got.response.messages, ...user('[[tokens=3]] more')];
      const next = await generateText({ ...ask, messages: history });
      assert.equal(words(next.text), 3);
    }));
  }

  test(`ai errors: ${way}`, { timeout }, covers(sdks[way], 'errors', async () => {
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
  }));
}

for (const [way, make] of Object.entries(ways)) {
  test(`ai retries what may be retried: ${way}`, { timeout }, covers(sdks[way], 'retries', async () => {
    const own = await organisation({ alias: 'max_attempts: 1,' });
    for (const upstream of own.upstream) await fault(upstream, { status: 503 });
    const model = make(own.secret)(own.model);
    const error = await caught(generateText({ model, prompt: 'hello', maxOutputTokens: 9, maxRetries: 1 }));
    assert.ok(RetryError.isInstance(error), String(error));
    assert.equal(error.errors.length, 2);
    assert.equal(error.errors[0].statusCode, 503);
    assert.equal((await received(own.upstream[0])) + (await received(own.upstream[1])), 2);
  }));
}

for (const [way, make] of [
  ['openai chat', openai],
  ['compatible', compatible],
]) {
  test(`ai embeddings: ${way}`, { timeout }, covers(sdks[way], 'embeddings', async () => {
    const got = await embedMany({ model: make(key()).embeddingModel('embed'), values: ['one text', 'another'] });
    assert.equal(got.embeddings.length, 2);
    assert.ok(got.embeddings[0].length > 8 && got.embeddings[0].some((x) => x !== 0));
    assert.equal(got.usage.tokens, 4);
  }));
}
