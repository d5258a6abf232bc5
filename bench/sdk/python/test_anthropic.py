"""Anthropic's own SDK: the Messages dialect, from a provider that speaks it and from one that does not."""

import json
import unittest

import anthropic

from helper import BASE_URL, CHAT_MODELS, KEY, Organisation, ended, fault, received


def app(secret=KEY):
    """A client with the SDK's own defaults, and the statuses it got, retries included."""
    client = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=secret)
    statuses = []
    client._client.event_hooks = {"response": [lambda answer: statuses.append(answer.status_code)]}
    return client, statuses


def ask(model, prompt, most=100, **more):
    return {"model": model, "max_tokens": most, "messages": [{"role": "user", "content": prompt}], **more}


def schema(prop):
    return {"type": "object", "properties": {prop: {"type": "string"}}, "required": [prop], "additionalProperties": False}


TOOLS = [
    {"name": "get_weather", "input_schema": schema("city")},
    {"name": "get_time", "input_schema": schema("zone")},
]


class Messages(unittest.TestCase):
    def test_whole(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                got = app()[0].messages.create(**ask(model, "[[tokens=7]] hello"))
                self.assertEqual((got.model, got.stop_reason), (model, "end_turn"))
                self.assertEqual(len(got.content[0].text.split()), 7)
                self.assertEqual(got.usage.output_tokens, 7)
                self.assertGreater(got.usage.input_tokens, 0)

    def test_stream(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                with app()[0].messages.stream(**ask(model, "[[tokens=20 gap=1ms sse=split]] hello")) as stream:
                    deltas = "".join(stream.text_stream)
                    got = stream.get_final_message()
                self.assertEqual(got.content[0].text, deltas)
                self.assertEqual(len(deltas.split()), 20)
                self.assertEqual((got.stop_reason, got.usage.output_tokens), ("end_turn", 20))

    def test_tools(self):
        for model in CHAT_MODELS:
            for streamed in (False, True):
                with self.subTest(model=model, streamed=streamed):
                    client, first = app()[0], ask(model, "call get_weather and call get_time", tools=TOOLS)
                    if streamed:
                        with client.messages.stream(**first) as stream:
                            got = stream.get_final_message()
                    else:
                        got = client.messages.create(**first)
                    calls = [b for b in got.content if b.type == "tool_use"]
                    self.assertEqual(got.stop_reason, "tool_use")
                    self.assertEqual([c.input for c in calls], [{"city": "example"}, {"zone": "example"}])
                    results = [{"type": "tool_result", "tool_use_id": c.id, "content": "sunny"} for c in calls]
                    history = [
                        *first["messages"],
                        {"role": "assistant", "content": got.content},
                        {"role": "user", "content": results},
                    ]
                    got = client.messages.create(**{**first, "messages": history})
                    self.assertEqual(got.stop_reason, "end_turn")

    def test_schema(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                form = {"format": {"type": "json_schema", "schema": schema("kind")}}
                got = app()[0].messages.create(**ask(model, "what is it?", output_config=form))
                self.assertEqual(json.loads(got.content[0].text), {"kind": "example"})

    def test_cancel(self):
        for model, most in zip(CHAT_MODELS, (1907, 1908)):  # of no other request: they find the provider's record
            with self.subTest(model):
                with app()[0].messages.stream(**ask(model, "[[tokens=1900 gap=10ms]] hello", most)) as stream:
                    for _, _ in zip(range(3), stream.text_stream):
                        pass
                self.assertEqual(ended(most)["outcome"], "cancelled")

    def test_broken(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                text = ""
                with app()[0].messages.stream(**ask(model, "[[tokens=20 after=8 fault=cut]] hello")) as stream:
                    with self.assertRaises(anthropic.APIError):
                        for delta in stream.text_stream:
                            text += delta
                self.assertEqual(len(text.split()), 8)

    def test_errors(self):
        for secret, request, kind in (
            ("sk-sluice-wrong", ask("chat", "hello"), anthropic.AuthenticationError),
            (KEY, ask("no-such-model", "hello"), anthropic.NotFoundError),
            (KEY, ask("chat", "hello", -1), anthropic.BadRequestError),
        ):
            with self.subTest(kind.__name__):
                client, statuses = app(secret)
                with self.assertRaises(kind) as caught:
                    client.messages.create(**request)
                self.assertEqual(caught.exception.body["type"], "error")
                self.assertEqual(len(statuses), 1, "the SDK repeated it")

    def test_rate_limit_is_waited_out(self):
        own = Organisation(limits="{ tpm: 3000 }")
        client, statuses = app(own.secret)
        client.messages.create(**ask(own.model, "[[tokens=2900]] hello", 2900))
        client.messages.create(**ask(own.model, "[[tokens=5]] hello", 300))
        self.assertEqual((statuses[1], statuses[-1]), (429, 200))

    def test_failover(self):
        own = Organisation()
        fault(own.upstream[0], status=503)
        client, statuses = app(own.secret)
        client.messages.create(**ask(own.model, "[[tokens=3]] hello"))
        self.assertEqual(statuses, [200])
        self.assertEqual([received(m) for m in own.upstream], [1, 1])
