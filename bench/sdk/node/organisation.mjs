// A team, a key, an alias and deployments of a test's own, so that limits, breakers and counts are nobody else's.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { setTimeout as wait } from 'node:timers/promises';
import { baseURL, timeout, witnessURL } from './helper.mjs';

const adminURL = process.env.SLUICE_ADMIN ?? 'http://127.0.0.1:7072';
const providerURL = witnessURL.replace(/\/witness$/, '');

// organisation applies it and waits until the sidecar knows the key. Its options are in the words of org.yaml; alias is
// more of the alias, such as 'max_attempts: 1,'. The alias tries the provider's models of upstream in their order.
export async function organisation({ budget = '{ monthly: 100 }', limits = '{}', alias = '' } = {}) {
  const name = `node-${randomBytes(6).toString('hex')}`;
  const secret = `sk-sluice-${name}`;
  const model = `chat-${name}`;
  const upstream = [`first-${name}`, `second-${name}`];
  assert.ok(process.env.SLUICE_ORG, "SLUICE_ORG must name the stack's org.yaml");
  let yaml = await readFile(process.env.SLUICE_ORG, 'utf8');
  const insert = (section, line) => (yaml = yaml.replace(`\n${section}:\n`, `\n${section}:\n  ${line}\n`));
  for (const m of upstream) {
    const base = `base_url: "${providerURL}/v1", model: ${m}, credential: fake-openai, price: chat`;
    insert('deployments', `- { id: ${m}, provider: openai, ${base} }`);
  }
  const targets = upstream.map((m, i) => `{ deployment: ${m}, priority: ${i + 1} }`).join(', ');
  insert('aliases', `${model}: { ${alias} targets: [ ${targets} ] }`);
  insert('teams', `${name}: { budget: ${budget} }`);
  const hash = createHash('sha256').update(secret).digest('hex');
  insert('keys', `- { id: ${name}, team: ${name}, secret_sha256: ${hash}, aliases: [${model}], limits: ${limits} }`);
  // Files of tests run side by side: quotad refuses a change that another has overtaken.
  while ((await post(`${adminURL}/admin/v1/config:apply`, { yaml, file: name }, 409)) === 409);
  for (const deadline = Date.now() + timeout; Date.now() < deadline; await wait(20)) {
    const known = await fetch(`${baseURL}/models`, { headers: { authorization: `Bearer ${secret}` } });
    if (known.status === 200) return { secret, model, upstream };
    assert.equal(known.status, 401);
  }
  throw new Error('the sidecar never knew the key');
}

// fault makes the provider answer the next requests for a model so; next 0 means all.
export const fault = (model, set, next = 0) => post(`${providerURL}/control`, { add_rules: [{ model, set, next }] });

// received is how many requests for a model have reached the provider.
export async function received(model) {
  const { models } = await (await fetch(`${witnessURL}?records=0`)).json();
  return models[model]?.received ?? 0;
}

// post resolves to the status: 200, or what else may be.
async function post(url, body, mayBe = 200) {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  assert.ok([200, mayBe].includes(answer.status), await answer.text());
  return answer.status;
}
