"""Refusals, faults and headers: what the SDK makes of them, and how often it sends what."""

import types
import unittest

import anthropic
import openai

from helper import App, Claude, Organisation, ask, covers, ended, fault, received

SDK = "openai\tchat"

# The three APIs, each by the SDK that is made for it.
WAYS = (
    types.SimpleNamespace(
        sdk=SDK,
        of=openai,
        app=App,
        call=lambda client, model, prompt, most: client.chat.completions.create(**ask(model, prompt, most)),
        code=lambda e: e.code,
    ),
    types.SimpleNamespace(
        sdk="openai\tresponses",
        of=openai,
        app=App,
        call=lambda client, model, prompt, most: client.responses.create(model=model, input=prompt, max_output_tokens=most),
        code=lambda e: e.code,
    ),
    types.SimpleNamespace(
        sdk="anthropic\tmessages",
        of=anthropic,
        app=Claude,
        call=lambda client, model, prompt, most: client.messages.create(
            model=model, max_tokens=most, messages=[{"role": "user", "content": prompt}]
        ),
        code=lambda e: e.body["error"]["details"]["error_code"],
    ),
)


class Limits(unittest.TestCase):
    @covers(SDK, "retries")
    def test_rate_limit_is_waited_out(self):
        own = Organisation(limits="{ tpm: 3000 }")
        app = App(own.secret)
        app.client.chat.completions.create(**ask(own.model, "[[tokens=2900]]", 2900))
        # About 90 tokens are left, 50 come each second.
        app.client.chat.completions.create(**ask(own.model, "[[tokens=5]]", 300))
        self.assertEqual((app.statuses[0], app.statuses[1], app.statuses[-1]), (200, 429, 200))
        self.assertEqual(received(own.upstream[0]), 2)
        for answer in app.answers:
            if answer.status_code == 429:
                self.assertEqual(answer.headers["x-should-retry"], "true")
                self.assertTrue(answer.headers["retry-after"] and answer.headers["retry-after-ms"])

    def test_rate_limit_is_shown(self):
        own = Organisation(limits="{ rpm: 1 }")
        app = App(own.secret, max_retries=0)
        app.client.chat.completions.create(**ask(own.model, "hello"))
        with self.assertRaises(openai.RateLimitError) as caught:
            app.client.chat.completions.create(**ask(own.model, "hello"))
        e = caught.exception
        self.assertEqual((e.code, e.type), ("key_requests_per_minute", "rate_limit_error"))
        self.assertTrue(e.response.headers["retry-after"])
        self.assertEqual(app.statuses, [200, 429])

    def test_budget_exhausted_is_final(self):
        for way in WAYS:
            with self.subTest(way.sdk):
                own = Organisation(budget="{ monthly: 0.002, hard: true }")
                app = way.app(own.secret, max_retries=5)
                with self.assertRaises(way.of.RateLimitError) as caught:
                    for _ in range(50):
                        way.call(app.client, own.model, "[[tokens=20]]", 20)
                e = caught.exception
                self.assertEqual(way.code(e), "budget_exhausted")
                self.assertIn('"resets_at":', e.response.text)
                self.assertEqual(e.response.headers["x-should-retry"], "false")
                self.assertNotIn("retry-after", e.response.headers)
                self.assertEqual(app.statuses.count(429), 1, "the SDK repeated it")
                self.assertEqual(received(own.upstream[0]), len(app.statuses) - 1)
                self.assertGreater(len(app.statuses), 1)

    def test_budget_reserved_is_retried(self):
        own = Organisation(budget="{ monthly: 0.02, hard: true }", alias="reserve: cap,")
        p = ask(own.model, "[[tokens=1500 first=10ms gap=1h]]", 1500, stream=True)
        running = App(own.secret).client.chat.completions.create(**p)
        next(running)
        # What the running stream holds comes back when its caller leaves.
        app = App(own.secret, lambda status: status == 429 and running.close(), max_retries=5)
        app.client.chat.completions.create(**ask(own.model, "[[tokens=5]]", 800))
        self.assertEqual((app.statuses[0], app.statuses[-1]), (429, 200))
        self.assertEqual(app.answers[0].headers["x-should-retry"], "true")
        self.assertTrue(app.answers[0].headers["retry-after"])


class Faults(unittest.TestCase):
    def test_classes(self):
        for way in WAYS:
            covers(way.sdk, "errors")(lambda self: self.classes(way))(self)

    def classes(self, way):
        ok, kinds = {}, way.of
        for name, rule, call, kind, status, code, times in (
            ("400", ok, {"most": -1}, kinds.BadRequestError, 400, "invalid_value", 1),
            ("401", ok, {"secret": "sk-sluice-wrong"}, kinds.AuthenticationError, 401, "invalid_api_key", 1),
            ("403", ok, {"model": "chat"}, kinds.PermissionDeniedError, 403, "alias_not_allowed", 1),
            ("404", ok, {"model": "nope"}, kinds.NotFoundError, 404, "model_not_found", 1),
            ("413", ok, {"prompt": "x" * (33 << 20)}, kinds.APIStatusError, 413, "request_too_large", 1),
            ("theirs 400", ok, {"prompt": "[[status=400 code=bad]]"}, kinds.BadRequestError, 400, "bad", 1),
            ("theirs 401", ok, {"prompt": "[[status=401]]"}, kinds.InternalServerError, 502, "upstream_misconfigured", 1),
            ("theirs 429", {"status": 429, "retry_after": "10ms"}, {}, kinds.RateLimitError, 429, "upstream_rate_limited", 3),
            ("theirs 503", {"status": 503}, {}, kinds.InternalServerError, 503, "upstream_overloaded", 3),
            ("silence", {"fault": "hang"}, {}, kinds.InternalServerError, 504, "upstream_timeout", 3),
        ):
            with self.subTest(way=way.sdk, name=name):
                own = Organisation(alias="max_attempts: 1, timeouts: { total: 400ms },")
                if rule:
                    for model in own.upstream:  # one that was rate limited is left for the other
                        fault(model, **rule)
                app = way.app(call.get("secret", own.secret))
                with self.assertRaises(kind) as caught:
                    way.call(app.client, call.get("model", own.model), call.get("prompt", "hello"), call.get("most", 50))
                e = caught.exception
                self.assertEqual((e.status_code, way.code(e)), (status, code))
                self.assertTrue(e.request_id)
                self.assertEqual(e.response.headers["x-should-retry"], "true" if times > 1 else "false")
                self.assertEqual(app.statuses, [status] * times)
                if times > 1:
                    self.assertEqual(sum(received(model) for model in own.upstream), times)

    def test_failover(self):
        for rule in ({"status": 500}, {"status": 429}, {"fault": "cut", "after": "head"}, {"fault": "error-first"}):
            with self.subTest(rule=rule):
                own = Organisation()
                fault(own.upstream[0], **rule)
                app = App(own.secret)
                raw = app.client.chat.completions.with_raw_response.create(**ask(own.model, "[[tokens=5]]"))
                self.assertEqual(raw.headers["x-gw-attempts"], "2")
                self.assertEqual(raw.headers["x-gw-deployment"], own.upstream[1])
                self.assertEqual(len(raw.parse().choices[0].message.content.split()), 5)
                stream = app.client.chat.completions.create(**ask(own.model, "[[tokens=5]]", stream=True))
                self.assertEqual(len("".join(c.choices[0].delta.content or "" for c in stream).split()), 5)
                self.assertEqual(app.statuses, [200, 200], "the SDK repeated a request")

    def test_broken_stream_is_an_error(self):
        own = Organisation(alias="timeouts: { idle: 300ms },")
        for name in ("cut", "reset", "truncate", "error-mid", "hang", "broken-json"):
            with self.subTest(name):
                app = App(own.secret)
                text = ""
                with self.assertRaises(openai.APIError):
                    p = ask(own.model, f"[[tokens=20 after=8 fault={name}]]", stream=True)
                    for chunk in app.client.chat.completions.create(**p):
                        text += chunk.choices[0].delta.content or ""
                self.assertIn(len(text.split()), range(1, 9))
                self.assertEqual(app.statuses, [200], "nobody may repeat a stream that had begun")

    def test_timeout_ends_the_providers_work(self):
        most = 1906  # of no other request: it finds the provider's record
        own = Organisation()
        with self.assertRaises(openai.APITimeoutError):
            App(own.secret, timeout=0.5, max_retries=0).client.chat.completions.create(**ask(own.model, "[[first=1h]]", most))
        self.assertEqual(ended(most)["outcome"], "cancelled")


class Headers(unittest.TestCase):
    def test_raw(self):
        own = Organisation(limits="{ rpm: 600, tpm: 60000 }")
        raw = App(own.secret).client.chat.completions.with_raw_response.create(**ask(own.model, "hello"))
        want = {"x-gw-deployment": own.upstream[0], "x-gw-attempts": "1"}
        want |= {"x-ratelimit-limit-requests": "600", "x-ratelimit-limit-tokens": "60000"}
        self.assertEqual({name: raw.headers.get(name) for name in want}, want)
        for name in ("x-request-id", "x-gw-config-version", "x-gw-budget-remaining", "x-ratelimit-remaining-requests"):
            self.assertTrue(raw.headers.get(name), name)
        for name in ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"):
            self.assertTrue(raw.headers.get(name), name)
        self.assertEqual(raw.parse()._request_id, raw.headers["x-request-id"])


if __name__ == "__main__":
    unittest.main()
