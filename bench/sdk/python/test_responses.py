"""The Responses API: from a provider that speaks it, and by way of chat from one that does not."""

import asyncio
import unittest

import openai

from helper import BASE_URL, CHAT_MODELS, KEY, THE_THING, App, Organisation, Thing, covers, ended, fault

SDK = "openai\tresponses"


def ask(model, prompt, **more):
    return {"model": model, "input": prompt, "store": False, **more}


def tool(name, prop):
    schema = {"type": "object", "properties": {prop: {"type": "string"}}, "required": [prop], "additionalProperties": False}
    return {"type": "function", "name": name, "parameters": schema, "strict": True}


class Responses(unittest.TestCase):
    def check_usage(self, usage, output):
        self.assertEqual(usage.output_tokens, output)
        self.assertGreater(usage.input_tokens, 0)
        self.assertEqual(usage.total_tokens, usage.input_tokens + output)

    def test_whole(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                got = App().client.responses.create(**ask(model, "[[tokens=7]]", instructions="be brief"))
                self.assertEqual((got.model, got.status, len(got.output_text.split())), (model, "completed", 7))
                self.check_usage(got.usage, 7)
                self.assertGreater(got.x_gateway["cost"], 0)

    @covers(SDK, "streaming")
    def test_stream(self):
        for model in CHAT_MODELS:
            for prompt in ("[[tokens=20 gap=1ms text=unicode sse=split]]", "[[tokens=20 reasoning=5]]"):
                with self.subTest(model=model, prompt=prompt):
                    client = App().client
                    events = list(client.responses.create(**ask(model, prompt, stream=True)))
                    self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
                    self.assertEqual((events[0].type, events[-1].type), ("response.created", "response.completed"))
                    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
                    self.assertEqual(len(text.split()), 20)
                    # The helper puts the same together.
                    with client.responses.stream(**ask(model, prompt)) as stream:
                        got = stream.get_final_response()
                    self.assertEqual((got.output_text, got.model), (text, model))
                    self.check_usage(got.usage, 25 if "reasoning" in prompt else 20)

    @covers(SDK, "tools")
    def test_tools(self):
        tools = [tool("get_weather", "city"), tool("get_time", "zone")]
        for model in CHAT_MODELS:
            for streamed in (False, True):
                with self.subTest(model=model, streamed=streamed):
                    client = App().client
                    asked = [{"role": "user", "content": "[[reasoning=4]] call get_weather and call get_time"}]
                    p = ask(model, asked, tools=tools)
                    if streamed:
                        with client.responses.stream(**p) as stream:
                            got = stream.get_final_response()
                    else:
                        got = client.responses.parse(**p)
                    calls = [item for item in got.output if item.type == "function_call"]
                    want = [("get_weather", '{"city":"example"}'), ("get_time", '{"zone":"example"}')]
                    self.assertEqual([(c.name, c.arguments) for c in calls], want)
                    # Everything goes back as it came, thoughts included.
                    results = [{"type": "function_call_output", "call_id": c.call_id, "output": "sunny"} for c in calls]
                    after = client.responses.create(**{**p, "input": [*asked, *got.output, *results]})
                    self.assertEqual(after.status, "completed")
                    self.assertTrue(after.output_text)

    @covers(SDK, "structured output")
    def test_schema(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                client, p = App().client, ask(model, "what is it?", text_format=Thing)
                self.assertEqual(client.responses.parse(**p).output_parsed, THE_THING)
                with client.responses.stream(**p) as stream:
                    self.assertEqual(stream.get_final_response().output_parsed, THE_THING)

    def test_cap(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                got = App().client.responses.create(**ask(model, "[[tokens=30]]", max_output_tokens=4))
                self.assertEqual((got.status, got.incomplete_details.reason), ("incomplete", "max_output_tokens"))
                self.check_usage(got.usage, 4)

    @covers(SDK, "cancel")
    def test_close_mid_stream(self):
        most = 1953  # of no other request: it finds the provider's record
        for model in CHAT_MODELS:
            with self.subTest(model):
                p = ask(model, "[[tokens=1900 gap=10ms]]", max_output_tokens=most, stream=True)
                with App().client.responses.create(**p) as stream:
                    for _, _ in zip(range(3), (e for e in stream if e.type == "response.output_text.delta")):
                        pass
                self.assertEqual(ended(most)["outcome"], "cancelled")

    def test_broken_stream_has_failed(self):
        for model in CHAT_MODELS:
            for broken in ("error-mid", "truncate", "cut"):
                with self.subTest(model=model, broken=broken):
                    p = ask(model, f"[[tokens=20 fault={broken} after=8]]", stream=True)
                    events = list(App().client.responses.create(**p))
                    self.assertEqual([e.type for e in events].count("response.output_text.delta"), 8)
                    self.assertEqual(events[-1].type, "response.failed")
                    self.assertTrue(events[-1].response.error.code and events[-1].response.error.message)

    @covers(SDK, "errors")
    def test_errors(self):
        for secret, p, kind, code, param in (
            ("sk-sluice-wrong", ask("chat", "hello"), openai.AuthenticationError, "invalid_api_key", None),
            (KEY, ask("nope", "hello"), openai.NotFoundError, "model_not_found", "model"),
            (KEY, ask("nope", "hello", stream=True), openai.NotFoundError, "model_not_found", "model"),
            (KEY, ask("chat", "hello", background=True), openai.BadRequestError, "invalid_value", "background"),
            (KEY, {**ask("chat-anthropic", "a"), "store": True}, openai.BadRequestError, "unsupported_parameter", "store"),
        ):
            with self.subTest(kind=kind.__name__, code=code):
                app = App(secret)
                with self.assertRaises(kind) as caught:
                    app.client.responses.create(**p)
                e = caught.exception
                self.assertEqual((e.code, e.param, len(app.statuses)), (code, param, 1))
                self.assertTrue(e.request_id)

    @covers(SDK, "retries")
    def test_retries(self):
        own = Organisation(alias="max_attempts: 1,")
        fault(own.upstream[0], times=1, status=503)
        app = App(own.secret)
        got = app.client.responses.create(**ask(own.model, "[[tokens=3]]"))
        self.assertEqual((len(got.output_text.split()), app.statuses), (3, [503, 200]))

    @covers(SDK, "async")
    def test_async(self):
        async def run(model):
            async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as client:
                stream = await client.responses.create(**ask(model, "[[tokens=9 gap=1ms]]", stream=True))
                text = "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])
                parsed = await client.responses.parse(**ask(model, "what is it?", text_format=Thing))
                with self.assertRaises(openai.NotFoundError):
                    await client.responses.create(**ask("no-such-model", "hello"))
                return len(text.split()), parsed.output_parsed

        for model in CHAT_MODELS:
            with self.subTest(model):
                self.assertEqual(asyncio.run(run(model)), (9, THE_THING))


if __name__ == "__main__":
    unittest.main()
