"""LangChain, by its packages for OpenAI and for Anthropic."""

import unittest

import anthropic
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

from helper import BASE_URL, CHAT_MODELS, KEY, Organisation, fault, received


@tool
def get_weather(city: str) -> str:
    """Says how the weather is."""
    return "sunny"


class Thing(BaseModel):
    """What it is."""

    kind: str
    count: int


def by_openai(model, secret=KEY, **more):
    # LangChain asks for no usage of streams from a base URL of the app's own, unless told to.
    return ChatOpenAI(model=model, api_key=secret, base_url=BASE_URL, max_tokens=100, stream_usage=True, **more)


def by_anthropic(model, secret=KEY, **more):
    return ChatAnthropic(model=model, api_key=secret, base_url=BASE_URL.removesuffix("/v1"), max_tokens=100, **more)


WAYS = {"openai": (by_openai, openai), "anthropic": (by_anthropic, anthropic)}


class LangChain(unittest.TestCase):
    def each(self):
        for way, (make, _) in WAYS.items():
            for model in CHAT_MODELS:
                with self.subTest(way=way, model=model):
                    yield make, model

    def test_invoke(self):
        for make, model in self.each():
            got = make(model).invoke("[[tokens=7]] hello")
            self.assertEqual(len(got.text.split()), 7)
            self.assertEqual(got.usage_metadata["output_tokens"], 7)

    def test_stream(self):
        for make, model in self.each():
            chunks = list(make(model).stream("[[tokens=20 gap=1ms sse=split]] hello"))
            whole = chunks[0]
            for chunk in chunks[1:]:
                whole += chunk
            self.assertGreater(len(chunks), 2, "the text came whole")
            self.assertEqual(len(whole.text.split()), 20)
            self.assertEqual(whole.usage_metadata["output_tokens"], 20)

    def test_tools(self):
        for make, model in self.each():
            bound, ask = make(model).bind_tools([get_weather]), HumanMessage("call get_weather")
            got = bound.invoke([ask])
            self.assertEqual([(c["name"], c["args"]) for c in got.tool_calls], [("get_weather", {"city": "example"})])
            result = ToolMessage("sunny", tool_call_id=got.tool_calls[0]["id"])
            self.assertEqual(bound.invoke([ask, got, result]).tool_calls, [])

    def test_tools_in_a_stream(self):
        for make, model in self.each():
            whole = None
            for chunk in make(model).bind_tools([get_weather]).stream("call get_weather"):
                whole = chunk if whole is None else whole + chunk
            self.assertEqual([(c["name"], c["args"]) for c in whole.tool_calls], [("get_weather", {"city": "example"})])

    def test_structured_output(self):
        for make, model in self.each():
            got = make(model).with_structured_output(Thing, method="json_schema").invoke("what is it?")
            self.assertEqual(got, Thing(kind="example", count=7))

    def test_errors(self):
        for way, (make, sdk) in WAYS.items():
            with self.subTest(way):
                with self.assertRaises(sdk.AuthenticationError):
                    make("chat", "sk-sluice-wrong").invoke("hello")
                with self.assertRaises(sdk.NotFoundError):
                    make("no-such-model").invoke("hello")

    def test_retries(self):
        for way, (make, sdk) in WAYS.items():
            with self.subTest(way):
                own = Organisation(alias="max_attempts: 1,")
                for model in own.upstream:
                    fault(model, status=503)
                with self.assertRaises(sdk.InternalServerError):
                    make(own.model, own.secret, max_retries=1).invoke("hello")
                self.assertEqual(sum(received(m) for m in own.upstream), 2)

    def test_embeddings(self):
        model = OpenAIEmbeddings(model="embed", api_key=KEY, base_url=BASE_URL, check_embedding_ctx_length=False)
        vectors = model.embed_documents(["one text", "another"])
        self.assertEqual(len(vectors), 2)
        self.assertTrue(any(vectors[0]))
        self.assertEqual(model.embed_query("one text"), vectors[0])
