"""What the tests share: clients as an app would make them, organisations of a test's own, and the provider's own count.

SLUICE_URL is the sidecar's base URL, SLUICE_KEY an app's secret of the demo organisation, SLUICE_WITNESS the fake
provider's witness, SLUICE_ADMIN quotad's admin API, SLUICE_ORG the file of the demo organisation, SLUICE_COVERED a file
that takes a line for each feature that a passed test proves. bench/sdk/run sets them.
"""

import functools
import hashlib
import json
import os
import secrets
import time
import urllib.error
import urllib.request

import anthropic
import openai
from pydantic import BaseModel

BASE_URL = os.environ.get("SLUICE_URL", "http://127.0.0.1:4000/v1")
WITNESS_URL = os.environ.get("SLUICE_WITNESS", "http://127.0.0.1:9900/witness")
ADMIN_URL = os.environ.get("SLUICE_ADMIN", "http://127.0.0.1:7072")
PROVIDER_URL = WITNESS_URL.removesuffix("/witness")
KEY = os.environ["SLUICE_KEY"]  # bench/sdk/run starts a stack and sets it

# One alias for each provider dialect behind the sidecar.
CHAT_MODELS = ("chat", "chat-anthropic")

# Seconds everything ends within when it works.
WAIT = 20


def covers(sdk, *features):
    """A test that, when it passes, proves features of an SDK ("package\\tAPI"): they are noted for docs/sdks.md."""

    def of(test):
        @functools.wraps(test)
        def run(self):
            test(self)
            if name := os.environ.get("SLUICE_COVERED"):
                with open(name, "a", encoding="utf-8") as f:
                    f.writelines(f"Python\t{sdk}\t{feature}\n" for feature in features)

        return run

    return of


class Part(BaseModel):
    name: str


class Thing(BaseModel):
    """A structured answer."""

    kind: str
    count: int
    parts: list[Part]


# What the fake provider makes of its schema.
THE_THING = Thing(kind="example", count=7, parts=[Part(name="example")])


class App:
    """An SDK client with the SDK's own defaults (two retries), and the answers it got, retries included."""

    def __init__(self, secret=KEY, answered=lambda status: None, **options):
        self.answers = []

        def keep(answer):
            self.answers.append(answer)
            answered(answer.status_code)

        self.client = openai.OpenAI(base_url=BASE_URL, api_key=secret, **options)
        # The SDK's own HTTP client tells what it received; nothing of it is replaced.
        self.client._client.event_hooks = {"response": [keep]}

    @property
    def statuses(self):
        return [a.status_code for a in self.answers]


class Claude:
    """Anthropic's SDK, which adds /v1 itself, with its own defaults, and the answers it got, retries included."""

    def __init__(self, secret=KEY, **options):
        self.answers = []
        self.client = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=secret, **options)
        self.client._client.event_hooks = {"response": [self.answers.append]}

    @property
    def statuses(self):
        return [a.status_code for a in self.answers]


def ask(model, prompt, most=None, **more):
    if most is not None:
        more["max_completion_tokens"] = most
    return {"model": model, "messages": [{"role": "user", "content": prompt}], **more}


def tool(name, prop):
    schema = {"type": "object", "properties": {prop: {"type": "string"}}, "required": [prop]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


class Organisation:
    """A team, a key, an alias and deployments of a test's own, so that limits, breakers and counts are nobody else's.

    The arguments are in the words of org.yaml; alias is more of the alias, such as "max_attempts: 1,". The alias tries
    the provider's models of upstream in their order.
    """

    def __init__(self, budget="{ monthly: 100 }", limits="{}", alias=""):
        name = "python-" + secrets.token_hex(6)
        self.secret, self.model = "sk-sluice-" + name, "chat-" + name
        self.upstream = ["first-" + name, "second-" + name]
        with open(os.environ["SLUICE_ORG"], encoding="utf-8") as f:
            yaml = f.read()
        targets = []
        for i, model in enumerate(self.upstream):
            where = f'base_url: "{PROVIDER_URL}/v1", model: {model}, credential: fake-openai, price: chat'
            yaml = insert(yaml, "deployments", f"- {{ id: {model}, provider: openai, {where} }}")
            targets.append(f"{{ deployment: {model}, priority: {i + 1} }}")
        yaml = insert(yaml, "aliases", f"{self.model}: {{ {alias} targets: [ {', '.join(targets)} ] }}")
        yaml = insert(yaml, "teams", f"{name}: {{ budget: {budget} }}")
        digest = hashlib.sha256(self.secret.encode()).hexdigest()
        may = f"aliases: [{self.model}], limits: {limits}"
        yaml = insert(yaml, "keys", f"- {{ id: {name}, team: {name}, secret_sha256: {digest}, {may} }}")
        post(ADMIN_URL + "/admin/v1/config:apply", {"yaml": yaml, "file": name})
        self.known()

    def known(self):
        """Waits until the sidecar knows the key."""
        request = urllib.request.Request(BASE_URL + "/models", headers={"Authorization": "Bearer " + self.secret})
        end = time.monotonic() + WAIT
        while True:
            try:
                with urllib.request.urlopen(request, timeout=WAIT):
                    return
            except urllib.error.HTTPError as e:
                if e.code != 401 or time.monotonic() > end:
                    raise
            time.sleep(0.02)


def insert(yaml, section, line):
    return yaml.replace(f"\n{section}:\n", f"\n{section}:\n  {line}\n", 1)


def fault(model, times=0, **settings):
    """Makes the provider answer the next requests for a model so, or all; names of settings have _ for -."""
    rule = {"model": model, "next": times, "set": {k.replace("_", "-"): v for k, v in settings.items()}}
    post(PROVIDER_URL + "/control", {"add_rules": [rule]})


def witness(records=0):
    with urllib.request.urlopen(f"{WITNESS_URL}?records={records}", timeout=WAIT) as answer:
        return json.load(answer)


def received(model):
    """How many requests for a model have reached the provider."""
    return witness()["models"].get(model, {}).get("received", 0)


def ended(max_tokens):
    """The provider's record of the newest request with this cap, once it has ended."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        for record in witness(1000)["records"]:
            if record["max_tokens"] == max_tokens and record["outcome"] not in ("", "open"):
                return record
        time.sleep(0.02)
    raise AssertionError(f"the provider never saw the end of the request with max_tokens {max_tokens}")


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT):
        pass
