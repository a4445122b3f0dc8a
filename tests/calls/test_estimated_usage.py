"""What an answer says it used when the server says little, nothing, or zero."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agentkit import Binding, Budget, CallRuntime
from agentkit.core.contracts import JsonObject, Rates
from agentkit.testing.loopback import HttpAnswer, LoopbackServer
from agentkit.testing.turns import sse

PRICE = Rates(Decimal(1), Decimal(2))


@pytest.mark.parametrize(
    ("usage", "estimated"),
    [(None, True), ({}, True), ({"prompt_tokens": 0, "completion_tokens": 0}, False), ({"prompt_tokens": 7}, True)],
)
async def test_b20_b64_what_is_not_told_is_estimated_and_marked(usage: JsonObject | None, estimated: bool) -> None:
    """B20, B64: without usage the answer has an estimate that says so, and its cost; a zero that was told is zero."""
    last: JsonObject = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}
    pieces = (sse({"choices": [{"delta": {"content": "word " * 40}}]}), sse(last), sse("[DONE]"))
    answer = HttpAnswer(headers={"content-type": "text/event-stream"}, pieces=pieces)
    async with LoopbackServer([answer]) as server, CallRuntime(budget=Budget("1.00")) as calls:
        binding = Binding("openai:m", base_url=server.url, api_key="key-for-loopback", price=PRICE)
        said = await calls.ask(binding, "Say a word forty times.")
    assert said.usage.estimated is estimated
    assert said.usage == said.records[0].usage
    assert said.cost is not None
    assert (said.cost > 0) is estimated
    assert (said.usage.output_tokens or 0) > 0 or not estimated
    if usage and estimated:
        assert said.usage.input_tokens == 7
