"""`agentkit ask` and `agentkit run` against a server on loopback and scripted models."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from decimal import Decimal

import pytest

from agentkit.core.contracts import ToolCall, Usage
from agentkit.testing import HttpAnswer, LoopbackServer, Turn
from agentkit.testing.turns import write_turn

CITY = '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}'
TOOLS = '''
from agentkit import tool

def weather(city: str) -> str:
    """Say what the weather is."""
    return f"sunny in {city}"

def gate() -> str:
    """Fail."""
    raise RuntimeError("the gate is shut")

@tool(effect="external", requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return "paid"
'''


def at(server: LoopbackServer, *more: str) -> list[str]:
    """Return the options that lead to a server."""
    return ["--model", "house-model", "--base-url", server.url, "--api-key-env", "HOUSE_API_KEY", *more]


def keyed() -> dict[str, str]:
    """Return an environment with a key for the server."""
    return {"HOUSE_API_KEY": "sk-house-0123456789"}


def unfinished(text: str) -> HttpAnswer:
    """Return a stream that says the text and then hangs."""
    pieces = write_turn(Turn(text=text), "chat")
    return HttpAnswer(headers={"content-type": "text/event-stream"}, pieces=pieces[:-3], then="hang")


async def test_only_the_answer_goes_to_standard_output(command) -> None:
    """The answer alone is on standard output; model, tokens, cost and time are on standard error."""
    async with LoopbackServer([Turn(text="Six times seven is 42.", usage=Usage(1000, 500))]) as server:
        done = await command("ask", "What is 6 * 7?", *at(server, "--price", "1/2"), env=keyed())
    assert (done.code, done.out) == (0, "Six times seven is 42.\n")
    assert "1000 in + 500 out" in done.err
    assert "$0.002" in done.err
    (request,) = server.requests
    assert request.headers["authorization"] == "Bearer sk-house-0123456789"
    assert request.body["messages"] == [{"role": "user", "content": "What is 6 * 7?"}]
    assert request.body["stream"] is True


async def test_every_option_reaches_the_request(command) -> None:
    """Instructions and knobs are sent."""
    knobs = ["--instructions", "Be brief.", "--max-tokens", "9", "--temperature", "0.5", "--seed", "3"]
    async with LoopbackServer([Turn(text="ok")]) as server:
        done = await command("ask", "hi", *at(server, *knobs), env=keyed())
    assert done.code == 0
    body = server.requests[0].body
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["max_tokens"], body["temperature"], body["seed"]) == (9, 0.5, 3)


async def test_json_has_the_whole_result(command) -> None:
    """With --json one object holds value, usage and exact cost, and nothing else is printed."""
    async with LoopbackServer([Turn(text="42", usage=Usage(3, 1))]) as server:
        done = await command("ask", "hi", *at(server, "--json", "--price", "0.1/0.3"), env=keyed())
    body = done.json
    assert done.code == 0
    assert (body["value"], body["text"], body["calls"], body["stop_reason"]) == ("42", "42", 1, "stop")
    assert Decimal(body["cost"]) == Decimal("0.0000006")
    assert body["cost_complete"] is True
    assert body["usage"]["input_tokens"] == 3


async def test_an_unpriced_answer_has_no_cost(command) -> None:
    """Without a budget an unpriced model answers, and its cost is null rather than 0."""
    async with LoopbackServer([Turn(text="42")]) as server:
        done = await command("ask", "hi", *at(server, "--json"), env=keyed())
    assert done.code == 0
    assert done.json["cost"] is None
    assert done.json["cost_complete"] is False


async def test_the_question_may_come_from_standard_input(command) -> None:
    """'-' reads all of standard input; bytes that are no text are replaced, not a crash."""
    async with LoopbackServer([Turn(text="ok")]) as server:
        done = await command("ask", "-", *at(server), stdin=b"caf\xe9\nau lait", env=keyed())
        assert done.code == 0
        assert server.requests[0].body["messages"][0]["content"] == "caf\ufffd\nau lait"
    empty = await command("ask", "-", "--model", "scripted:hi")
    assert empty.code == 2
    assert "prompt is empty" in empty.err


async def test_a_question_of_broken_bytes_is_sent_as_text(command) -> None:
    """An argument that is no UTF-8 reaches the model with the bad byte replaced."""
    async with LoopbackServer([Turn(text="ok")]) as server:
        done = await command("ask", b"caf\xe9", *at(server), env=keyed())
    assert done.code == 0
    assert server.requests[0].body["messages"][0]["content"] == "caf\ufffd"


async def test_a_terminal_that_cannot_show_a_sign_does_not_fail(command) -> None:
    """On an ASCII output, signs it lacks are replaced."""
    done = await command("ask", "hi", "--model", "scripted:caf\u00e9", env={"PYTHONIOENCODING": "ascii"})
    assert (done.code, done.out) == (0, "caf?\n")


async def test_an_answer_is_held_to_its_schema(command) -> None:
    """A fitting answer is printed as JSON; another is corrected once, then refused with the paths."""
    schema = command.write("city.json", CITY)
    async with LoopbackServer([Turn(text='{"city": 7}'), Turn(text='```json\n{"city": "Oslo"}\n```')]) as server:
        done = await command("ask", "hi", *at(server, "--output-schema", schema), env=keyed())
    assert (done.code, json.loads(done.out)) == (0, {"city": "Oslo"})
    assert len(server.requests) == 2
    assert "2 calls" in done.err
    async with LoopbackServer([Turn(text='{"city": 7}')]) as server:
        done = await command("ask", "hi", *at(server, "--output-schema", schema, "--json"), env=keyed())
    assert done.code == done.json["error"]["exit_code"] == 4
    assert done.json["error"]["type"] == "OutputInvalid"
    assert "$.city" in done.err


async def test_tools_run_and_are_shown_apart_from_the_answer(command) -> None:
    """A function is called with what the model said; the call is shown on standard error, the answer stays alone."""
    command.write("mytools.py", TOOLS)
    asked = Turn(calls=(ToolCall("c1", "weather", '{"city": "Oslo"}'), ToolCall("c2", "gate", "{}")))
    async with LoopbackServer([asked, Turn(text="Sunny.")]) as server:
        options = at(server, "--tools", "mytools:weather", "--tools", "mytools:gate")
        done = await command("run", "hi", *options, env=keyed())
    assert (done.code, done.out) == (0, "Sunny.\n")
    assert '→ weather {"city": "Oslo"}' in done.err
    assert "← sunny in Oslo" in done.err
    told = [message["content"] for message in server.requests[1].body["messages"] if message["role"] == "tool"]
    assert told[0] == "sunny in Oslo"
    assert "the gate is shut" in told[1]


async def test_a_turn_limit_ends_with_its_own_code(command) -> None:
    """A model that only calls tools is stopped after --max-turns, with one last turn to answer."""
    command.write("mytools.py", TOOLS)
    always = Turn(calls=(ToolCall("c1", "weather", '{"city": "Oslo"}'),))
    async with LoopbackServer(
        lambda got: always if got.body.get("tool_choice") != "none" else Turn(text="As far as I got.")
    ) as server:
        done = await command("run", "hi", *at(server, "--tools", "mytools:weather", "--max-turns", "2"), env=keyed())
    assert done.code == 3
    assert done.out == "As far as I got.\n"
    assert "max_turns" in done.err
    assert "Raise --max-turns" in done.err


async def test_a_tool_that_needs_approval_is_not_run(command) -> None:
    """A call that a person has to approve stops the run with 3, and the way on is told; nothing was paid."""
    command.write("mytools.py", TOOLS)
    asked = Turn(calls=(ToolCall("c1", "pay", '{"amount": 3}'),))
    async with LoopbackServer([asked, Turn(text="never")]) as server:
        done = await command("run", "hi", *at(server, "--tools", "mytools:pay", "--json"), env=keyed())
    assert done.code == 3
    assert done.json["stop_reason"] == "suspended"
    assert "approve" in done.err
    assert "paid" not in done.err
    assert len(server.requests) == 1


async def test_a_crossed_budget_ends_with_its_own_code(command) -> None:
    """A call that does not fit the budget is not sent; the exit code is 3 and the option to raise is named."""
    async with LoopbackServer([Turn(text="never")]) as server:
        options = at(server, "--budget", "0.000001", "--price", "1000/1000", "--json")
        done = await command("ask", "hi", *options, env=keyed())
    assert done.code == done.json["error"]["exit_code"] == 3
    assert done.json["error"]["type"] == "MeterExceeded"
    assert "--budget" in done.err
    assert server.requests == []


async def test_a_model_without_a_price_is_refused_under_a_budget(command) -> None:
    """The option to add is named before anything is sent; with it the same command answers."""
    async with LoopbackServer([Turn(text="paid")]) as server:
        refused = await command("ask", "hi", *at(server, "--budget", "1", "--json"), env=keyed())
        assert refused.code == 2
        assert refused.json["error"]["type"] == "UnpricedModel"
        assert "--price IN/OUT" in refused.json["error"]["hint"]
        assert server.requests == []
        done = await command("ask", "hi", *at(server, "--budget", "1", "--price", "1/2"), env=keyed())
    assert (done.code, done.out) == (0, "paid\n")


async def test_a_deadline_ends_a_stream_that_hangs(command) -> None:
    """--timeout aborts the request in flight, names itself, and ends with 3."""
    async with LoopbackServer([unfinished("Once upon a time")]) as server:
        done = await command("ask", "hi", *at(server, "--timeout", "1.5"), env=keyed())
        await server.until_busy(0)
    assert done.code == 3
    assert done.out == "" or done.out.startswith("Once")
    assert "--timeout" in done.err


@pytest.mark.parametrize("as_json", [False, True])
async def test_an_interrupt_ends_quietly_and_closes_the_request(command, as_json: bool) -> None:
    """SIGINT in the middle of a stream ends with 130, no traceback, and the connection let go."""
    async with LoopbackServer([unfinished("Once upon a time")]) as server:
        child = await command.start("ask", "hi", *at(server, *(["--json"] if as_json else [])), env=keyed())
        assert child.stdout is not None
        shown = b"" if as_json else await child.stdout.readuntil(b"time")
        await server.until_busy(1)
        child.send_signal(signal.SIGINT)
        out, err = await child.communicate()
        await server.until_busy(0)
    assert child.returncode == 130
    assert b"Traceback" not in err
    assert b"interrupted" in err
    if as_json:
        assert json.loads(out)["error"]["exit_code"] == 130
    else:
        assert shown.startswith(b"Once")


async def test_a_reader_that_goes_away_is_no_crash(command) -> None:
    """A closed pipe, as of `| head`, ends the command without a traceback."""
    async with LoopbackServer([Turn(text="word " * 40_000, size=4000)]) as server:
        read, write = os.pipe()
        child = await asyncio.create_subprocess_exec(
            *argv("ask", "hi", *at(server)), env=command.environment(**keyed()), stdout=write, stderr=-1
        )
        os.close(write)
        await asyncio.to_thread(os.read, read, 100)
        os.close(read)
        _, err = await child.communicate()
    assert child.returncode == 1
    assert err == b""


def argv(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "agentkit.cli", *arguments]


async def test_a_failing_server_is_said_in_a_sentence(command) -> None:
    """A refused key is bad input, a broken stream is a failure; the key is in no text."""
    denied = HttpAnswer(status=401, pieces=(b'{"error":{"message":"Incorrect key sk-house-0123456789"}}',))
    async with LoopbackServer([denied]) as server:
        done = await command("ask", "hi", *at(server, "--json"), env=keyed())
    assert done.code == done.json["error"]["exit_code"] == 2
    assert done.json["error"]["type"] == "AuthFailed"
    assert "sk-house-0123456789" not in done.out + done.err
    broken = HttpAnswer(headers={"content-type": "text/event-stream"}, pieces=unfinished("Once").pieces, then="reset")
    async with LoopbackServer([broken]) as server:
        done = await command("ask", "hi", *at(server), env=keyed())
    assert done.code == 1
    assert done.err.count("agentkit:") == 1
