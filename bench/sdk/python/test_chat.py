"""Answers: chat, streams, tools, embeddings, models."""

import asyncio
import base64
import json
import struct
import unittest

import openai

from helper import BASE_URL, CHAT_MODELS, KEY, THE_THING, App, Thing, ask, covers, ended, tool

SDK = "openai\tchat"


class Chat(unittest.TestCase):
    def check_usage(self, usage, output):
        self.assertEqual(usage.completion_tokens, output)
        self.assertGreater(usage.prompt_tokens, 0)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + output)

    def check_cost(self, own):
        self.assertGreater(own["cost"], 0)
        self.assertEqual(own["currency"], "USD")
        self.assertIs(own["estimated"], False)
        self.assertTrue(own["deployment"])

    def test_whole(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                got = App().client.chat.completions.create(**ask(model, "[[tokens=7]] hello"))
                self.assertEqual((got.model, got.choices[0].finish_reason), (model, "stop"))
                self.assertEqual(len(got.choices[0].message.content.split()), 7)
                self.check_usage(got.usage, 7)
                self.check_cost(got.x_gateway)

    @covers(SDK, "streaming")
    def test_stream(self):
        prompts = ("[[tokens=20 gap=1ms]]", "[[tokens=20 text=unicode sse=split]]", "[[tokens=20 sse=crlf,nospace,comment]]")
        for model in CHAT_MODELS:
            for prompt in prompts:
                with self.subTest(model=model, prompt=prompt):
                    client = App().client
                    usage = {"include_usage": True}
                    chunks = list(client.chat.completions.create(**ask(model, prompt, stream=True, stream_options=usage)))
                    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
                    self.assertEqual(text, client.chat.completions.create(**ask(model, prompt)).choices[0].message.content)
                    self.assertEqual({c.model for c in chunks}, {model})
                    self.assertEqual(chunks[-1].choices, [])
                    self.assertEqual([c for c in chunks[:-1] if c.usage], [])
                    self.check_usage(chunks[-1].usage, 20)
                    self.check_cost(chunks[-1].x_gateway)

    def test_stream_without_usage(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                chunks = list(App().client.chat.completions.create(**ask(model, "[[tokens=5]]", stream=True)))
                self.assertTrue(all(len(c.choices) == 1 and c.usage is None for c in chunks))

    @covers(SDK, "streaming")
    def test_stream_helper(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                usage = {"include_usage": True}
                with App().client.chat.completions.stream(**ask(model, "[[tokens=12]]", stream_options=usage)) as stream:
                    deltas = "".join(e.delta for e in stream if e.type == "content.delta")
                    got = stream.get_final_completion()
                self.assertEqual(got.choices[0].message.content, deltas)
                self.assertEqual(len(deltas.split()), 12)
                self.check_usage(got.usage, 12)

    def test_cap(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                got = App().client.chat.completions.create(**ask(model, "[[tokens=30]]", 4))
                self.assertEqual(got.choices[0].finish_reason, "length")
                self.check_usage(got.usage, 4)

    @covers(SDK, "tools")
    def test_parallel_tools(self):
        tools = [tool("get_weather", "city"), tool("get_time", "zone")]
        for model in CHAT_MODELS:
            with self.subTest(model):
                client = App().client
                p = ask(model, "call get_weather and call get_time", tools=tools)
                got = client.chat.completions.create(**p)
                self.check_calls(got)
                with client.chat.completions.stream(**p) as stream:
                    fragments = [e for e in stream if e.type == "tool_calls.function.arguments.delta"]
                    self.check_calls(stream.get_final_completion())
                self.assertGreater(len(fragments), 2, "the arguments came whole")
                self.assertEqual({e.index for e in fragments}, {0, 1})
                # The results go back with the calls: the history is read too.
                message = got.choices[0].message
                results = [{"role": "tool", "tool_call_id": c.id, "content": "sunny"} for c in message.tool_calls]
                p["messages"] = [*p["messages"], message, *results]
                after = client.chat.completions.create(**p)
                self.assertEqual(after.choices[0].finish_reason, "stop")
                self.assertTrue(after.choices[0].message.content)

    def check_calls(self, got):
        calls = got.choices[0].message.tool_calls
        self.assertEqual(got.choices[0].finish_reason, "tool_calls")
        self.assertEqual([c.function.name for c in calls], ["get_weather", "get_time"])
        self.assertEqual([list(json.loads(c.function.arguments)) for c in calls], [["city"], ["zone"]])
        self.assertEqual(len({c.id for c in calls} - {""}), 2)

    @covers(SDK, "cancel")
    def test_close_mid_stream(self):
        most = 1905  # of no other request: it finds the provider's record
        for model in CHAT_MODELS:
            with self.subTest(model):
                stream = App().client.chat.completions.create(**ask(model, "[[tokens=1900 gap=10ms]]", most, stream=True))
                for _ in range(3):
                    next(stream)
                stream.close()
                record = ended(most)
                self.assertEqual(record["outcome"], "cancelled")
                self.assertLess(record["tokens_sent"], 1000)

    @covers(SDK, "structured output")
    def test_schema(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                client, p = App().client, ask(model, "what is it?", response_format=Thing)
                self.assertEqual(client.chat.completions.parse(**p).choices[0].message.parsed, THE_THING)
                with client.chat.completions.stream(**p) as stream:
                    self.assertEqual(stream.get_final_completion().choices[0].message.parsed, THE_THING)

    def test_json_without_a_schema(self):
        mode = {"type": "json_object"}
        got = App().client.chat.completions.create(**ask("chat", "what is it?", response_format=mode))
        self.assertEqual(json.loads(got.choices[0].message.content), {"answer": "example"})
        with self.assertRaises(openai.BadRequestError) as caught:  # Claude has no such mode
            App().client.chat.completions.create(**ask("chat-anthropic", "what is it?", response_format=mode))
        self.assertEqual((caught.exception.code, caught.exception.param), ("unsupported_parameter", "response_format"))

    @covers(SDK, "async")
    def test_async(self):
        async def run(model):
            async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as client:
                create = client.chat.completions.create
                stream = await create(**ask(model, "[[tokens=9 gap=1ms]]", stream=True))
                words = "".join([c.choices[0].delta.content or "" async for c in stream]).split()
                called = await create(**ask(model, "call get_weather", tools=[tool("get_weather", "city")]))
                with self.assertRaises(openai.NotFoundError):
                    await create(**ask("no-such-model", "hello"))
                return len(words), called.choices[0].finish_reason

        for model in CHAT_MODELS:
            with self.subTest(model):
                self.assertEqual(asyncio.run(run(model)), (9, "tool_calls"))

    @covers(SDK, "cancel")
    def test_async_cancel(self):
        most = 1950  # of no other request: it finds the provider's record

        async def run(model):
            async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as client:
                await asyncio.wait_for(client.chat.completions.create(**ask(model, "[[first=1h]]", most)), 0.3)

        for model in CHAT_MODELS:
            with self.subTest(model):
                with self.assertRaises(asyncio.TimeoutError):
                    asyncio.run(run(model))
                self.assertEqual(ended(most)["outcome"], "cancelled")


class Other(unittest.TestCase):
    @covers(SDK, "embeddings")
    def test_embeddings(self):
        client = App().client
        p = {"model": "embed", "input": ["one text", "another"], "dimensions": 64}
        default = client.embeddings.create(**p)  # the SDK asks for base64 by itself and decodes it
        floats = client.embeddings.create(**p, encoding_format="float")
        packed = client.embeddings.create(**p, encoding_format="base64")
        self.assertEqual((floats.model, floats.usage.prompt_tokens), ("embed", 4))
        for i in range(2):
            want = floats.data[i].embedding
            self.assertEqual(len(want), 64)
            # base64 holds float32, JSON decimals of them: equal at that precision.
            text = packed.data[i].embedding
            self.assertIsInstance(text, str)
            single = struct.unpack("<64f", struct.pack("<64f", *want))
            self.assertEqual(struct.unpack("<64f", base64.b64decode(text)), single)
            self.assertEqual(struct.unpack("<64f", struct.pack("<64f", *default.data[i].embedding)), single)
        self.assertNotEqual(floats.data[0].embedding, floats.data[1].embedding)

    @covers(SDK, "models")
    def test_models(self):
        client = App().client
        ids = [m.id for m in client.models.list()]
        for want in ("chat", "chat-anthropic", "embed"):
            self.assertIn(want, ids)
            self.assertEqual(client.models.retrieve(want).id, want)
        self.assertNotIn("fake-large", ids, "a provider's own model name is offered")


if __name__ == "__main__":
    unittest.main()
