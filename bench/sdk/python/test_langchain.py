"""LangChain, by its packages for OpenAI and for Anthropic."""

import asyncio
import unittest

import anthropic
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from helper import BASE_URL, CHAT_MODELS, KEY, THE_THING, Organisation, Thing, covers, ended, fault, received


@tool
def get_weather(city: str) -> str:
    """Says how the weather is."""
    return "sunny"


def by_openai(model, secret=KEY, **more):
    # LangChain asks for no usage of streams from a base URL of the app's own, unless told to.
    more = {"max_tokens": 100, **more}
    return ChatOpenAI(model=model, api_key=secret, base_url=BASE_URL, stream_usage=True, **more)


def by_responses(model, secret=KEY, **more):
    return by_openai(model, secret, use_responses_api=True, **more)


def by_anthropic(model, secret=KEY, **more):
    more = {"max_tokens": 100, **more}
    return ChatAnthropic(model=model, api_key=secret, base_url=BASE_URL.removesuffix("/v1"), **more)


WAYS = {"openai": (by_openai, openai), "responses": (by_responses, openai), "anthropic": (by_anthropic, anthropic)}

SDKS = {
    "openai": "langchain-core, langchain-openai\tchat",
    "responses": "langchain-core, langchain-openai\tresponses",
    "anthropic": "langchain-core, langchain-anthropic\tmessages",
}


def everywhere(feature):
    """A test of all of WAYS."""

    def of(test):
        for sdk in SDKS.values():
            test = covers(sdk, feature)(test)
        return test

    return of


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

    @everywhere("streaming")
    def test_stream(self):
        for make, model in self.each():
            chunks = list(make(model).stream("[[tokens=20 gap=1ms sse=split]] hello"))
            whole = chunks[0]
            for chunk in chunks[1:]:
                whole += chunk
            self.assertGreater(len(chunks), 2, "the text came whole")
            self.assertEqual(len(whole.text.split()), 20)
            self.assertEqual(whole.usage_metadata["output_tokens"], 20)

    @everywhere("tools")
    def test_tools(self):
        for make, model in self.each():
            bound, ask = make(model).bind_tools([get_weather]), HumanMessage("call get_weather")
            got = bound.invoke([ask])
            self.assertEqual([(c["name"], c["args"]) for c in got.tool_calls], [("get_weather", {"city": "example"})])
            result = ToolMessage("sunny", tool_call_id=got.tool_calls[0]["id"])
            self.assertEqual(bound.invoke([ask, got, result]).tool_calls, [])

    @everywhere("tools")
    def test_tools_in_a_stream(self):
        for make, model in self.each():
            whole = None
            for chunk in make(model).bind_tools([get_weather]).stream("call get_weather"):
                whole = chunk if whole is None else whole + chunk
            self.assertEqual([(c["name"], c["args"]) for c in whole.tool_calls], [("get_weather", {"city": "example"})])

    @everywhere("structured output")
    def test_structured_output(self):
        for make, model in self.each():
            for method in ("json_schema", "function_calling"):
                got = make(model).with_structured_output(Thing, method=method).invoke("what is it?")
                self.assertEqual(got, THE_THING, method)

    @everywhere("async")
    def test_async(self):
        async def run():
            for make, model in self.each():
                got = await make(model).ainvoke("[[tokens=7]] hello")
                self.assertEqual(len(got.text.split()), 7)
                text = "".join([c.text async for c in make(model).astream("[[tokens=9 gap=1ms]] hello")])
                self.assertEqual(len(text.split()), 9)

        asyncio.run(run())  # one for all: LangChain keeps its connections from one model to the next

    @everywhere("cancel")
    def test_cancel(self):
        most = 1959  # of no other request: it finds the provider's record
        for make, model in self.each():
            most += 1
            stream = make(model, max_tokens=most).stream("[[tokens=1900 gap=10ms]] hello")
            for _, _ in zip(range(3), (c for c in stream if c.text)):
                pass
            stream.close()
            self.assertEqual(ended(most)["outcome"], "cancelled")

    @everywhere("errors")
    def test_errors(self):
        for way, (make, sdk) in WAYS.items():
            with self.subTest(way):
                with self.assertRaises(sdk.AuthenticationError):
                    make("chat", "sk-sluice-wrong").invoke("hello")
                with self.assertRaises(sdk.NotFoundError):
                    make("no-such-model").invoke("hello")

    @everywhere("retries")
    def test_retries(self):
        for way, (make, sdk) in WAYS.items():
            with self.subTest(way):
                own = Organisation(alias="max_attempts: 1,")
                for model in own.upstream:
                    fault(model, status=503)
                with self.assertRaises(sdk.InternalServerError):
                    make(own.model, own.secret, max_retries=1).invoke("hello")
                self.assertEqual(sum(received(m) for m in own.upstream), 2)

    @covers(SDKS["openai"], "embeddings")
    def test_embeddings(self):
        model = OpenAIEmbeddings(model="embed", api_key=KEY, base_url=BASE_URL, check_embedding_ctx_length=False)
        vectors = model.embed_documents(["one text", "another"])
        self.assertEqual(len(vectors), 2)
        self.assertTrue(any(vectors[0]))
        self.assertEqual(model.embed_query("one text"), vectors[0])
