"""Which protocol a binding is asked in: chosen by name, checked before anything is sent, never exchanged."""

from __future__ import annotations

from contextlib import aclosing

import httpx
import msgspec
import openai
import pytest

from agentkit import Binding, CallRuntime, run
from agentkit.core.contracts import (
    Call,
    ChatRequest,
    ToolCall,
    ToolCallReady,
    ToolChoice,
    UserMessage,
    WireProtocol,
)
from agentkit.errors import BadRequest, ConfigurationError, ProviderError
from agentkit.providers.model import build_model
from agentkit.providers.names import wire_name
from agentkit.providers.profiles import find_profile
from agentkit.testing import HttpAnswer, LoopbackServer, ScriptedModel, Turn, make_context
from agentkit.tools import tool

OK = Turn(text="It is forty two.", reasoning="Six sevens.")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


def at(server: LoopbackServer, protocol: str | None, **more: object) -> Binding:
    """Return a binding to a compatible server."""
    return Binding("openai:m", base_url=server.url, protocol=protocol, price="1/1", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("protocol", "path"), [(None, PATHS["chat"]), *PATHS.items()])
async def test_a_binding_chooses_its_protocol(protocol: str | None, path: str) -> None:
    """Each protocol has its path, also behind one address; left out, it is the server's first."""
    async with LoopbackServer([OK]) as server, CallRuntime() as calls:
        answer = await calls.ask(at(server, protocol), "What is 6 * 7?")
        again = await calls.ask(at(server, "chat"), "What is 6 * 7?")
    assert answer.text == again.text == OK.text
    assert [received.path for received in server.requests] == [path, PATHS["chat"]]


def test_an_unknown_protocol_names_the_known() -> None:
    """A protocol that is none is refused where it is written down, with those there are."""
    with pytest.raises(ConfigurationError, match=r"protocol='reponses'.*'chat', 'responses', 'messages'"):
        Binding("openai:gpt-5.2", protocol="reponses")  # type: ignore[arg-type]
    for model in ("scripted:hi", ScriptedModel(["hi"])):
        with pytest.raises(ConfigurationError, match="no server"):
            Binding(model, protocol="chat")


@pytest.mark.parametrize(
    ("model", "protocol", "known"),
    [
        ("openai:gpt-5.2", "messages", "'chat' and 'responses'"),
        ("anthropic:claude-sonnet-4-6", "responses", "'messages'"),
        ("mistral:some-model", "responses", "'chat'"),
        ("local:smollm2", "messages", "'chat' and 'responses'"),
    ],
)
async def test_a_protocol_the_server_does_not_speak(model: str, protocol: WireProtocol, known: str) -> None:
    """Asking a known server in a protocol it does not speak is refused before sending, with those it speaks."""
    async with CallRuntime() as calls:
        with pytest.raises(ConfigurationError, match=f"{protocol}.*speaks {known}"):
            await calls.ask(Binding(model, protocol=protocol, api_key="k", price="1/1"), "hi")


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_responses_never_become_chat(status: int) -> None:
    """A server without the Responses path gives an error; nothing is asked again in another protocol."""
    missing = HttpAnswer(status=status, pieces=(b'{"error": {"message": "no such path", "type": "x"}}',))
    async with LoopbackServer([missing]) as server, CallRuntime() as calls:
        with pytest.raises(BadRequest, match="no such path"):
            await calls.ask(at(server, "responses"), "hi")
    assert [received.path for received in server.requests] == [PATHS["responses"]]


async def test_an_answer_of_another_protocol_is_an_error() -> None:
    """A chat answer on the Responses path, whole or streamed, is refused, not read as an empty answer."""
    for kind, body in (
        ("application/json", b'{"id": "c", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}'),
        ("text/event-stream", b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\ndata: [DONE]\n\n'),
    ):
        answer = HttpAnswer(headers={"content-type": kind}, pieces=(body,))
        async with LoopbackServer([answer]) as server, CallRuntime() as calls:
            with pytest.raises(ProviderError):
                await calls.ask(at(server, "responses"), "hi")
        assert {received.path for received in server.requests} == {PATHS["responses"]}


async def test_an_openai_client_speaks_both() -> None:
    """AsyncOpenAI is asked in Responses when the binding says so, and an Azure client at its own path."""
    async with LoopbackServer([OK]) as server, CallRuntime() as calls:
        plain = openai.AsyncOpenAI(api_key="k", base_url=server.url)
        azure = openai.AsyncAzureOpenAI(api_key="k", azure_endpoint=server.origin, api_version="2026-01-01")
        for client in (plain, azure):
            binding = Binding("openai:m", client=client, protocol="responses", price="1/1")
            assert (await calls.ask(binding, "hi")).text == OK.text
            await client.close()
    paths = [received.path for received in server.requests]
    assert paths == ["/v1/responses", "/openai/responses?api-version=2026-01-01"]


async def test_a_client_that_does_not_speak_it_is_named() -> None:
    """A protocol the client does not speak is refused with those it does, before anything is sent."""
    async with LoopbackServer([OK]) as server, CallRuntime() as calls:
        client = openai.AsyncOpenAI(api_key="k", base_url=server.url)
        with pytest.raises(ConfigurationError, match="AsyncOpenAI speaks chat and responses"):
            await calls.ask(Binding("openai:m", client=client, protocol="messages", price="1/1"), "hi")
        await client.close()
        http = httpx.AsyncClient()
        binding = Binding("openai:m", client=http, base_url=server.url, protocol="messages", price="1/1")
        assert (await calls.ask(binding, "hi")).text == OK.text
        await http.aclose()
    assert [received.path for received in server.requests] == ["/v1/messages"]


@tool(effect="read")
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def test_a_tool_loop_sends_reasoning_back() -> None:
    """A run over Responses sends the encrypted reasoning back with the call, and the model sees the result."""
    call = Turn(reasoning="Use it.", calls=(ToolCall("c1", "double", '{"number": 21}'),), model="m")
    async with LoopbackServer([call, OK]) as server:
        answer = await run(at(server, "responses"), "Double 21.", [double])
    assert answer.text == OK.text
    second = server.requests[1].body["input"]
    assert isinstance(second, list)
    assert [item.get("type", item.get("role")) for item in second] == [  # type: ignore[union-attr]
        "user",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert second[1]["encrypted_content"] == call.signature  # type: ignore[index,call-overload]
    assert second[3]["output"] == "42"  # type: ignore[index,call-overload]


async def test_a_model_that_never_reasons_is_asked_without_its_reasoning() -> None:
    """A server that refuses the question for encrypted reasoning is asked once more without it, and remembered."""
    said = b'{"error": {"message": "not with this model", "type": "invalid_request_error", "param": "include"}}'
    async with LoopbackServer([HttpAnswer(status=400, pieces=(said,)), OK]) as server, CallRuntime() as calls:
        for _ in range(2):
            assert (await calls.ask(at(server, "responses"), "hi")).text == OK.text
    assert ["include" in received.body for received in server.requests] == [True, False, False]


@pytest.mark.parametrize(("code", "again"), [("unknown_parameter", True), (None, False)])
async def test_what_keeps_a_server_from_storing_is_dropped_only_when_it_is_unknown(code, again) -> None:
    """A server that knows no `store` is asked without it, and the answer says so; any other complaint of it stands."""
    said = b'{"error": {"message": "no", "type": "invalid_request_error", "param": "store", "code": %s}}'
    refused = HttpAnswer(status=400, pieces=(said % (b'"%s"' % code.encode() if code else b"null"),))
    async with LoopbackServer([refused, OK]) as server, CallRuntime() as calls:
        if not again:
            with pytest.raises(BadRequest):
                await calls.ask(at(server, "responses"), "hi")
            assert len(server.requests) == 1
            return
        answer = await calls.ask(at(server, "responses"), "hi")
    assert ["store" in received.body for received in server.requests] == [True, False]
    assert [(note.kind, note.what) for note in answer.adjustments] == [("setting", "store")]


async def test_tool_names_and_choice_go_as_servers_take_them() -> None:
    """A tool whose name no server takes is called by its alias there and by its own name here."""
    odd = msgspec.structs.replace(double.spec, name="math.double")
    turn = Turn(calls=(ToolCall("c1", wire_name("math.double"), '{"number": 21}'),))
    async with LoopbackServer([turn]) as server:
        model = build_model(find_profile("openai"), base_url=server.url, protocol="responses")
        request = ChatRequest((UserMessage("hi"),), (odd,), ToolChoice("tool", "math.double"))
        async with aclosing(model.stream(Call(make_context(model), request, "c"))) as events:
            ready = [event.call.name async for event in events if isinstance(event, ToolCallReady)]
        await model.aclose()
    body = server.requests[0].body
    assert ready == ["math.double"]
    assert body["tool_choice"] == {"type": "function", "name": wire_name("math.double")}
    assert body["tools"][0]["name"] == wire_name("math.double")  # type: ignore[index,call-overload]
