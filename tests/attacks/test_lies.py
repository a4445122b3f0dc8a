"""Servers that lie about usage, quote keys, or nest without end; readers that leave before the run has failed."""

from __future__ import annotations

import asyncio
import gc
from decimal import Decimal

import pytest

from agentkit import Agent, Binding, Budget, CallRuntime, Scope, Usage
from agentkit.core.contracts import RetryPolicy
from agentkit.errors import BadRequest, MeterExceeded, StreamBroken
from agentkit.testing import HttpAnswer, LoopbackServer, Reply, ScriptedModel
from agentkit.testing.turns import sse

SCOPE = Scope(tenant="t")
KEY = "zq-0123456789-made-up-key"
SSE = {"content-type": "text/event-stream"}


@pytest.mark.parametrize("said", [Usage(-5, -900), Usage(10**30, 1), Usage(5, 1, -50, -50, 0, -1)])
async def test_usage_that_cannot_be_true_never_gives_money_back(said):
    """A negative or absurd number is estimated instead; what was spent only grows."""
    budget = Budget("1")
    binding = Binding(ScriptedModel([Reply("four words are here", usage=said)]), price="1/1")
    async with CallRuntime() as calls:
        answer = await calls.ask(binding, "hi", ctx=calls.context("r", SCOPE, budget=budget))
    assert Decimal(0) < budget.spent() == answer.cost < Decimal("0.0001")
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens > 0


async def test_a_strict_ceiling_holds_when_text_has_many_tokens():
    """A prompt that turns out to be a token for each byte does not cross it: it is refused, or it fits."""
    prompt = "%{]~;^" * 100

    def dense(request):
        return Reply("x", usage=Usage(sum(len(m.content) for m in request.messages), request.settings.max_tokens))

    for ceiling in ("0.0004", "0.0007", "0.0009", "0.002"):
        budget = Budget(ceiling, strict=True)
        async with CallRuntime() as calls:
            for _ in range(3):
                try:
                    ctx = calls.context(None, SCOPE, budget=budget)
                    await calls.ask(Binding(ScriptedModel([dense]), price="1/1"), prompt, ctx=ctx)
                except MeterExceeded:
                    break
        assert budget.spent() <= budget.ceiling()


async def test_a_chunk_that_is_nested_without_end_is_a_broken_stream():
    """No RecursionError reaches the caller, and the attempt is settled; newer Pythons read the depth and miss the end."""
    deep = b'data: {"choices":[],"x":' + b'{"a":' * 5000 + b"1" + b"}" * 5001 + b"\n\n"
    budget = Budget("1")
    async with (
        LoopbackServer([HttpAnswer(headers=SSE, pieces=(deep,))]) as server,
        CallRuntime(retry=RetryPolicy(max_attempts=1)) as calls,
    ):
        binding = Binding("openai:m", base_url=server.url, api_key="k", price="1/1")
        with pytest.raises(StreamBroken, match="nested|end marker|no JSON chunk"):
            await calls.ask(binding, "hi", ctx=calls.context("r", SCOPE, budget=budget))
    assert budget.held() == 0
    assert budget.spent() > 0


async def test_a_key_that_a_server_quotes_stays_out_of_every_part_of_the_error():
    """Message, code and request id come without it."""
    body = sse({"error": {"message": f"bad {KEY}", "code": f"code-{KEY}", "type": KEY}}).removeprefix(b"data: ")
    answer = HttpAnswer(status=400, headers={"x-request-id": KEY}, pieces=(body,))
    async with LoopbackServer([answer]) as server, CallRuntime() as calls:
        with pytest.raises(BadRequest) as raised:
            await calls.ask(Binding("openai:m", base_url=server.url, api_key=KEY, price="1/1"), "hi")
    error = raised.value
    assert KEY not in f"{error} {error!r} {error.args} {vars(error)}"


async def test_a_reader_who_is_cancelled_while_closing_leaves_no_complaint():
    """A run that failed while its reader was cancelled twice is not reported as never retrieved."""
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    agent = Agent("a", Binding(ScriptedModel([BadRequest("no")], repeat_last=True), price="1/1"))

    async def read(calls):
        async with agent.stream("go", calls.context(None, SCOPE)) as events:
            async for _ in events:
                return

    async with CallRuntime() as calls:
        for turns in range(8):
            reader = asyncio.create_task(read(calls))
            for _ in range(turns):
                await asyncio.sleep(0)
            reader.cancel()
            await asyncio.sleep(0)
            reader.cancel()
            await asyncio.wait([reader])
            for _ in range(5):
                await asyncio.sleep(0)
    del reader
    gc.collect()
    assert complaints == []
