"""What the Responses API has and chat has not, or has otherwise: custom tools, logprobs, what is stored."""

import unittest

import openai

from helper import CHAT_MODELS, App

PATCH = {"type": "custom", "name": "apply_patch", "description": "takes a patch"}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "strict": True,
    "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False,
    },
}


def drained(client, **request):
    """The events of a stream, and what the helper made of them."""
    with client.responses.stream(**request) as stream:
        events = list(stream)
        return events, stream.get_final_response()


class Face(unittest.TestCase):
    def test_tools(self):
        for model in CHAT_MODELS:
            with self.subTest(model):
                client = App().client
                ask = {"model": model, "input": "call apply_patch and call get_weather", "tools": [PATCH, WEATHER], "store": False}
                events, final = drained(client, **ask)
                for got in (final, client.responses.create(**ask)):
                    self.assertEqual([i.type for i in got.output], ["custom_tool_call", "function_call"])
                    self.assertEqual((got.output[0].name, got.output[0].input), ("apply_patch", "example"))
                    self.assertEqual(got.output[1].arguments, '{"city":"example"}')
                said = "".join(e.delta for e in events if e.type == "response.custom_tool_call_input.delta")
                self.assertEqual(said, "example")
                self.assertEqual(final.output[1].parsed_arguments, {"city": "example"})
                again = client.responses.create(model=model, tools=[PATCH, WEATHER], store=False, input=[
                    {"role": "user", "content": ask["input"]}, *final.output,
                    {"type": "custom_tool_call_output", "call_id": final.output[0].call_id, "output": "done"},
                    {"type": "function_call_output", "call_id": final.output[1].call_id, "output": "sunny"},
                ])
                self.assertTrue(again.output_text)

    def test_logprobs(self):
        ask = {"model": "chat", "input": "[[tokens=4]] hello", "include": ["message.output_text.logprobs"], "top_logprobs": 2}
        events, final = drained(App().client, **ask)
        for logprobs in (
            [p for e in events if e.type == "response.output_text.delta" for p in e.logprobs],
            final.output[0].content[0].logprobs,
        ):
            self.assertEqual("".join(p.token for p in logprobs), final.output_text)
            self.assertEqual({(p.logprob, len(p.top_logprobs)) for p in logprobs}, {(-0.5, 2)})

    def test_nothing_is_stored(self):
        for member, value in {
            "previous_response_id": "resp_1", "conversation": "conv_1", "store": True, "prompt": {"id": "pmpt_1"}, "truncation": "auto",
        }.items():
            with self.subTest(member), self.assertRaises(openai.BadRequestError) as caught:
                App().client.responses.create(model="chat-anthropic", input="hello", **{member: value})
            self.assertEqual((caught.exception.param, caught.exception.code), (member, "unsupported_parameter"))
        with self.assertRaises(openai.BadRequestError) as caught:
            App().client.responses.create(model="chat-anthropic", input=[{"type": "item_reference", "id": "msg_1"}])
        self.assertEqual(caught.exception.param, "input[0].id")
        self.assertIn("store: false", caught.exception.message)
