import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { app, awaitRecord, chatModels, checkCost, checkUsage, covers } from './helper.mjs';
import { theThing, thing, timeout, tool, user, words } from './helper.mjs';

const sdk = 'openai\tchat';

for (const model of chatModels) {
  test(`chat: ${model}`, { timeout }, async () => {
    const { client } = app();
    const got = await client.chat.completions.create({ model, messages: user('[[tokens=7]] hello') });
    assert.equal(got.model, model);
    assert.equal(got.object, 'chat.completion');
    assert.equal(got.choices[0].finish_reason, 'stop');
    assert.equal(got.choices[0].message.role, 'assistant');
    assert.equal(words(got.choices[0].message.content), 7);
    checkUsage(got.usage, 7);
    checkCost(got.x_gateway);
  });

  for (const [name, prompt] of [
    ['plain', '[[tokens=20 gap=1ms]] hello'],
    ['many scripts, split inside characters', '[[tokens=20 text=unicode sse=split]] hello'],
    ['unusual framing', '[[tokens=20 sse=crlf,nospace,comment]] hello'],
    ['late', '[[tokens=20 first=50ms gap=10ms]] hello'],
  ]) {
    test(`stream with usage: ${name}: ${model}`, { timeout }, covers(sdk, 'streaming', async () => {
      const { client } = app();
      const messages = user(prompt);
      const stream = await client.chat.completions.create({
        model,
        messages,
        stream: true,
        stream_options: { include_usage: true },
      });
      let text = '';
      let finish;
      let last;
      for await (const chunk of stream) {
        assert.equal(chunk.model, model);
        text += chunk.choices[0]?.delta.content ?? '';
        finish ??= chunk.choices[0]?.finish_reason;
        last = chunk;
      }
      assert.equal(finish, 'stop');
      assert.equal(words(text), 20);
      assert.deepEqual(last.choices, []);
      checkUsage(last.usage, 20);
      checkCost(last.x_gateway);
      const whole = await client.chat.completions.create({ model, messages });
      assert.equal(text, whole.choices[0].message.content);
    }));
  }

  test(`stream without usage: ${model}`, { timeout }, async () => {
    const { client } = app();
    const stream = await client.chat.completions.create({ model, messages: user('[[tokens=5]] hello'), stream: true });
    let text = '';
    for await (const chunk of stream) {
      assert.equal(chunk.usage ?? null, null);
      assert.equal(chunk.choices.length, 1);
      text += chunk.choices[0].delta.content ?? '';
    }
    assert.equal(words(text), 5);
  });

  test(`stream helper accumulates: ${model}`, { timeout }, covers(sdk, 'streaming', async () => {
    const { client } = app();
    const stream = client.chat.completions.stream({
      model,
      messages: user('[[tokens=12]] hello'),
      stream_options: { include_usage: true },
    });
    let deltas = '';
    stream.on('content', (delta) => (deltas += delta));
    const got = await stream.finalChatCompletion();
    assert.equal(got.model, model);
    assert.equal(got.choices[0].finish_reason, 'stop');
    assert.equal(got.choices[0].message.content, deltas);
    assert.equal(words(deltas), 12);
    checkUsage(got.usage, 12);
    checkUsage(await stream.totalUsage(), 12);
  }));

  test(`cut off at the cap: ${model}`, { timeout }, async () => {
    const { client } = app();
    const got = await client.chat.completions.create({
      model,
      messages: user('[[tokens=30]] hello'),
      max_completion_tokens: 4,
    });
    assert.equal(got.choices[0].finish_reason, 'length');
    checkUsage(got.usage, 4);
  });

  for (const [name, prompt, want] of [
    ['one', 'call get_weather', ['get_weather']],
    ['two in parallel', 'call get_weather and call get_time', ['get_weather', 'get_time']],
  ]) {
    const ask = { model, messages: user(prompt), tools: [tool('get_weather', 'city'), tool('get_time', 'zone')] };

    test(`tools: ${name}: ${model}`, { timeout }, covers(sdk, 'tools', async () => {
      const { client } = app();
      const got = await client.chat.completions.create(ask);
      checkCalls(got, want);
      // The results go back with the calls: the history is read too.
      const message = got.choices[0].message;
      const results = message.tool_calls.map((c) => ({ role: 'tool', tool_call_id: c.id, content: 'sunny' }));
      const next = await client.chat.completions.create({ ...ask, messages: [...ask.messages, message, ...results] });
      assert.equal(next.choices[0].finish_reason, 'stop');
      assert.ok(next.choices[0].message.content);
    }));

    test(`tools in a stream: ${name}: ${model}`, { timeout }, covers(sdk, 'tools', async () => {
      const { client } = app();
      const stream = client.chat.completions.stream(ask);
      const done = [];
      let fragments = 0;
      stream.on('tool_calls.function.arguments.delta', () => fragments++);
      stream.on('tool_calls.function.arguments.done', (event) => done.push(event.name));
      const got = await stream.finalChatCompletion();
      checkCalls(got, want);
      assert.deepEqual(done, want);
      assert.ok(fragments > want.length, `${fragments} fragments: the arguments came whole`);
    }));
  }

  for (const streamed of [false, true]) {
    test(`tool runner${streamed ? ' in a stream' : ''}: ${model}`, { timeout }, covers(sdk, 'tool runner', async () => {
      const { client, sent } = app();
      const asked = [];
      const weather = zodFunction({
        name: 'get_weather',
        parameters: z.object({ city: z.string() }),
        function: ({ city }) => {
          asked.push(city);
          return 'sunny';
        },
      });
      const runner = client.chat.completions.runTools({
        model,
        messages: user('call get_weather'),
        tools: [weather],
        stream: streamed,
      });
      assert.ok(await runner.finalContent());
      assert.deepEqual(asked, ['example']);
      assert.equal(sent.length, 2);
    }));
  }

  test(`of a schema: ${model}`, { timeout }, covers(sdk, 'structured output', async () => {
    const { client } = app();
    const ask = { model, messages: user('what is it?'), response_format: zodResponseFormat(thing, 'thing') };
    const got = await client.chat.completions.parse(ask);
    assert.deepEqual(got.choices[0].message.parsed, theThing);
    const streamed = await client.chat.completions.stream(ask).finalChatCompletion();
    assert.deepEqual(streamed.choices[0].message.parsed, theThing);
  }));

  test(`cancel in mid-stream: ${model}`, { timeout }, covers(sdk, 'cancel', async () => {
    const maxTokens = 1902; // of no other request: it finds the provider's record
    const { client } = app();
    const stream = await client.chat.completions.create({
      model,
      messages: user('[[tokens=1900 gap=10ms]] hello'),
      stream: true,
      max_completion_tokens: maxTokens,
    });
    let seen = 0;
    for await (const chunk of stream) {
      if (chunk.choices[0]?.delta.content) seen++;
      if (seen === 3) break; // the SDK aborts the request
    }
    assert.equal(seen, 3);
    assert.ok(stream.controller.signal.aborted);
    const record = await awaitRecord(maxTokens);
    assert.equal(record.outcome, 'cancelled');
    assert.ok(record.tokens_sent >= 3 && record.tokens_sent < 1000, `the provider sent ${record.tokens_sent} tokens`);
  }));

  test(`cancel of the stream helper: ${model}`, { timeout }, covers(sdk, 'cancel', async () => {
    const { client } = app();
    const stream = client.chat.completions.stream({ model, messages: user('[[tokens=1900 gap=10ms]] hello') });
    stream.once('content', () => stream.abort());
    await assert.rejects(stream.finalChatCompletion(), OpenAI.APIUserAbortError);
  }));
}

function checkCalls(got, want) {
  const { finish_reason: finish, message } = got.choices[0];
  assert.equal(finish, 'tool_calls');
  assert.deepEqual(
    message.tool_calls.map((c) => c.function.name),
    want,
  );
  for (const c of message.tool_calls) assert.equal(Object.keys(JSON.parse(c.function.arguments)).length, 1);
  const ids = new Set(message.tool_calls.map((c) => c.id));
  assert.equal(ids.size, want.length);
  assert.ok(!ids.has(''));
}
