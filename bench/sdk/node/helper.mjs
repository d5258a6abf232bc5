// What the tests share: a client as an app would make it, and a look at what the provider truly served.
//
// SLUICE_URL is the sidecar's base URL, SLUICE_KEY an app's secret of the demo organisation, SLUICE_WITNESS the fake
// provider's witness, SLUICE_ADMIN quotad's admin API, SLUICE_ORG the file of the demo organisation, SLUICE_COVERED a
// file that takes a line for each feature that a passed test proves. bench/sdk/run sets them.
import assert from 'node:assert/strict';
import { appendFile } from 'node:fs/promises';
import { setTimeout as wait } from 'node:timers/promises';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { z } from 'zod';

export const baseURL = process.env.SLUICE_URL ?? 'http://127.0.0.1:4000/v1';
export const witnessURL = process.env.SLUICE_WITNESS ?? 'http://127.0.0.1:9900/witness';

// One alias for each provider dialect behind the sidecar.
export const chatModels = ['chat', 'chat-anthropic'];

// Every test ends within this, in milliseconds.
export const timeout = 20_000;

// covers is a test that, when it passes, proves a feature of an SDK ("package\tAPI"): it is noted for docs/sdks.md.
export const covers = (sdk, feature, run) => async () => {
  await run();
  if (process.env.SLUICE_COVERED) await appendFile(process.env.SLUICE_COVERED, `Node\t${sdk}\t${feature}\n`);
};

// caught is the error of a call that must fail.
export const caught = (promise) =>
  promise.then(
    () => assert.fail('no error'),
    (error) => error,
  );

export function key() {
  assert.ok(process.env.SLUICE_KEY, 'SLUICE_KEY is not set: bench/sdk/run starts a stack and sets it');
  return process.env.SLUICE_KEY;
}

// counted is a fetch that keeps what is sent with it, retries included: each request with the status and the headers of
// its answer. answered is called after each answer's head.
function counted(answered = () => {}) {
  const sent = [];
  const send = async (url, init) => {
    const one = { url: String(url), body: init?.body };
    sent.push(one);
    const answer = await fetch(url, init);
    one.status = answer.status;
    one.headers = answer.headers;
    answered(answer.status);
    return answer;
  };
  return { sent, send };
}

// app is OpenAI's SDK with its own defaults (two retries), and what it sent.
export function app(secret = key(), answered) {
  const { sent, send } = counted(answered);
  return { client: new OpenAI({ baseURL, apiKey: secret, fetch: send }), sent };
}

// claude is Anthropic's SDK, which adds /v1 itself, and what it sent.
export function claude(secret = key()) {
  const { sent, send } = counted();
  return { client: new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ''), apiKey: secret, fetch: send }), sent };
}

export const user = (content) => [{ role: 'user', content }];

export const words = (text) => text.split(/\s+/).filter(Boolean).length;

export const tool = (name, property) => ({
  type: 'function',
  function: {
    name,
    parameters: { type: 'object', properties: { [property]: { type: 'string' } }, required: [property] },
  },
});

// thing is a structured answer by zod's schema, and theThing what the fake provider makes of it.
export const thing = z.object({
  kind: z.string(),
  count: z.number().int(),
  parts: z.array(z.object({ name: z.string() })),
});
export const theThing = { kind: 'example', count: 7, parts: [{ name: 'example' }] };

export function checkUsage(usage, output) {
  assert.equal(usage.completion_tokens, output);
  assert.ok(usage.prompt_tokens > 0);
  assert.equal(usage.total_tokens, usage.prompt_tokens + output);
}

// checkCost looks at the gateway's own member.
export function checkCost(own) {
  assert.ok(own.cost > 0);
  assert.equal(own.currency, 'USD');
  assert.equal(own.estimated, false);
  assert.ok(own.deployment);
}

// awaitRecord polls the witness until the newest request with this cap has ended.
export async function awaitRecord(maxTokens) {
  for (const deadline = Date.now() + timeout; Date.now() < deadline; await wait(20)) {
    const { records } = await (await fetch(witnessURL)).json();
    const record = records.find((r) => r.max_tokens === maxTokens);
    if (record && record.outcome && record.outcome !== 'open') return record;
  }
  throw new Error(`the provider never saw the end of the request with max_tokens ${maxTokens}`);
}
