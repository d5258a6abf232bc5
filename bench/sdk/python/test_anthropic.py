"""Anthropic's own SDK: the Messages dialect, from a provider that speaks it and from one that does not."""

import asyncio
import unittest

import anthropic

from helper import BASE_URL, CHAT_MODELS, KEY, THE_THING, Claude, Organisation, Thing, covers, ended, fault, received

SDK = "anthropic\tmessages"


def app(secret=KEY):
    claude = Claude(secret)
    return claude.client, claude


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

    @covers(SDK, "streaming")
    def test_stream(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                with app()[0].messages.stream(**ask(model, "[[tokens=20 gap=1ms sse=split]] hello")) as stream:
                    deltas = "".join(stream.text_stream)
                    got = stream.get_final_message()
                self.assertEqual(got.content[0].text, deltas)
                self.assertEqual(len(deltas.split()), 20)
                self.assertEqual((got.stop_reason, got.usage.output_tokens), ("end_turn", 20))

    @covers(SDK, "tools")
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

    @covers(SDK, "tool runner")
    def test_tool_runner(self):
        for model in CHAT_MODELS:
            for streamed in (False, True):
                with self.subTest(model=model, streamed=streamed):
                    asked = []

                    @anthropic.beta_tool
                    def get_weather(city: str) -> str:
                        """Says how the weather is."""
                        asked.append(city)
                        return "sunny"

                    client, sent = app()
                    p = ask(model, "call get_weather", tools=[get_weather], stream=streamed)
                    last = client.beta.messages.tool_runner(**p).until_done()
                    self.assertEqual((asked, last.stop_reason, sent.statuses), (["example"], "end_turn", [200, 200]))

    @covers(SDK, "structured output")
    def test_schema(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                client, p = app()[0], ask(model, "what is it?", output_format=Thing)
                self.assertEqual(client.messages.parse(**p).parsed_output, THE_THING)
                with client.messages.stream(**p) as stream:
                    self.assertEqual(stream.get_final_message().parsed_output, THE_THING)

    @covers(SDK, "thinking")
    def test_thinking(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                client, thinking = app()[0], {"type": "enabled", "budget_tokens": 2048}
                first = ask(model, "[[tokens=5 reasoning=4]] hello", 4000, thinking=thinking)
                with client.messages.stream(**first) as stream:
                    thoughts = "".join(e.thinking for e in stream if e.type == "thinking")
                    streamed = stream.get_final_message()
                for got in (client.messages.create(**first), streamed):
                    self.assertEqual((got.usage.output_tokens, len(got.content[-1].text.split())), (9, 5))
                    if model == "chat-anthropic":  # OpenAI's models keep what they think to themselves
                        self.assertEqual((got.content[0].type, got.content[0].thinking), ("thinking", thoughts))
                        self.assertTrue(thoughts and got.content[0].signature)
                    again = {"role": "user", "content": "[[tokens=3]] and then?"}
                    history = [*first["messages"], {"role": "assistant", "content": got.content}, again]
                    after = client.messages.create(**{**first, "messages": history})
                    self.assertEqual(len(after.content[-1].text.split()), 3)

    @covers(SDK, "token counting")
    def test_count_tokens(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                client, p = app()[0], ask(model, "[[tokens=3]] one two three four", 9, system="be brief")
                want = client.messages.create(**p).usage.input_tokens
                del p["max_tokens"]
                self.assertEqual(client.messages.count_tokens(**p).input_tokens, want)

    @covers(SDK, "async")
    def test_async(self):
        async def run(model):
            async with anthropic.AsyncAnthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=KEY) as client:
                async with client.messages.stream(**ask(model, "[[tokens=9 gap=1ms]]")) as stream:
                    words = "".join([delta async for delta in stream.text_stream]).split()
                called = await client.messages.create(**ask(model, "call get_weather", tools=TOOLS))
                with self.assertRaises(anthropic.NotFoundError):
                    await client.messages.create(**ask("no-such-model", "hello"))
                return len(words), called.stop_reason

        for model in CHAT_MODELS:
            with self.subTest(model):
                self.assertEqual(asyncio.run(run(model)), (9, "tool_use"))

    @covers(SDK, "cancel")
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

    @covers(SDK, "errors")
    def test_errors(self):
        for secret, request, kind in (
            ("sk-sluice-wrong", ask("chat", "hello"), anthropic.AuthenticationError),
            (KEY, ask("no-such-model", "hello"), anthropic.NotFoundError),
            (KEY, ask("chat", "hello", -1), anthropic.BadRequestError),
        ):
            with self.subTest(kind.__name__):
                client, sent = app(secret)
                with self.assertRaises(kind) as caught:
                    client.messages.create(**request)
                self.assertEqual(caught.exception.body["type"], "error")
                self.assertEqual(len(sent.statuses), 1, "the SDK repeated it")

    @covers(SDK, "retries")
    def test_rate_limit_is_waited_out(self):
        own = Organisation(limits="{ tpm: 3000 }")
        client, sent = app(own.secret)
        client.messages.create(**ask(own.model, "[[tokens=2900]] hello", 2900))
        client.messages.create(**ask(own.model, "[[tokens=5]] hello", 300))
        self.assertEqual((sent.statuses[1], sent.statuses[-1]), (429, 200))

    def test_failover(self):
        own = Organisation()
        fault(own.upstream[0], status=503)
        client, sent = app(own.secret)
        client.messages.create(**ask(own.model, "[[tokens=3]] hello"))
        self.assertEqual(sent.statuses, [200])
        self.assertEqual([received(m) for m in own.upstream], [1, 1])

    @covers(SDK, "models")
    def test_models(self):
        client = app()[0]
        models = list(client.models.list())
        for model in models:
            self.assertEqual((model.type, model.display_name), ("model", model.id))
            self.assertEqual(client.models.retrieve(model.id), model)
        self.assertLessEqual(set(CHAT_MODELS), {model.id for model in models})
        with self.assertRaises(anthropic.NotFoundError) as caught:
            client.models.retrieve("nope")
        self.assertTrue(caught.exception.request_id)
