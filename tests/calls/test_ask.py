"""Asking once: answers, corrections, refusals of bad input, and what errors carry."""

from __future__ import annotations

import asyncio
import dataclasses
from decimal import Decimal

import pytest

from agentkit import (
    AssistantMessage,
    Binding,
    Budget,
    CallRuntime,
    ComposedPrompt,
    ModelSettings,
    RunContext,
    Scope,
    SystemMessage,
    UserMessage,
    ask,
    run_sync,
)
from agentkit.core.contracts import Usage
from agentkit.errors import (
    ConfigurationError,
    DeadlineExceeded,
    MeterExceeded,
    MoneyPrecisionError,
    OutputInvalid,
    Overloaded,
)
from agentkit.testing import Fault, Hang, ManualClock, Reply, ScriptedModel


@dataclasses.dataclass
class City:
    name: str
    people: int


PARIS = '{"name": "Paris", "people": 2100000}'
USED = Usage(1000, 500)


def priced(*replies, price="1/2", **more):
    """Return a binding to a scripted model that costs money, and the model."""
    model = ScriptedModel(replies)
    return Binding(model, price=price, **more), model


async def test_text_answer_tells_everything_it_took():
    """A plain answer has value, text, messages, usage, exact cost, model, provider, run id and calls."""
    binding, model = priced(Reply("42", usage=USED))
    answer = await ask(binding, "What is 6 * 7?")
    assert (answer.value, answer.text, answer.stop_reason) == ("42", "42", "stop")
    assert answer.messages == (UserMessage("What is 6 * 7?"), AssistantMessage("42"))
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (1000, 500)
    assert answer.cost == answer.known_cost == Decimal("0.002")
    assert answer.cost_complete
    assert (answer.model, answer.provider, answer.calls) == ("scripted", "scripted", 1)
    assert answer.run_id
    assert answer.last_message == AssistantMessage("42")
    assert model.open_streams == 0


async def test_conversation_goes_on_from_the_messages_of_an_answer():
    """`answer.messages` plus a new message is the next prompt, sent as it is."""
    binding, model = priced("one", "two")
    first = await ask(binding, "a")
    second = await ask(binding, [*first.messages, UserMessage("b")])
    assert model.requests[1].messages == (UserMessage("a"), AssistantMessage("one"), UserMessage("b"))
    assert second.text == "two"


async def test_instructions_and_composed_prompts_become_system_messages():
    """`instructions=` and a prompt's `system` part lead the conversation."""
    binding, model = priced("x", "y")
    await ask(binding, "q", instructions="Be brief.")
    await ask(binding, ComposedPrompt("q", system="Be kind."))
    assert model.requests[0].messages == (SystemMessage("Be brief."), UserMessage("q"))
    assert model.requests[1].messages == (SystemMessage("Be kind."), UserMessage("q"))


@pytest.mark.parametrize("output", [City, {"type": "object", "properties": {"name": {"type": "string"}}}])
async def test_typed_output_is_validated(output):
    """A type gives its instance, a raw JSON Schema plain data; the model is told the schema."""
    binding, model = priced(PARIS)
    answer = await ask(binding, "Capital of France?", output=output)
    expected = City("Paris", 2_100_000) if output is City else {"name": "Paris", "people": 2_100_000}
    assert answer.value == expected
    assert model.requests[0].output is not None
    assert "name" in model.requests[0].output.schema["properties"]


async def test_one_correction_is_paid_for_in_the_answer():
    """An answer that does not fit goes back once, with what is wrong; both attempts are in usage, cost and calls."""
    binding, model = priced(Reply('{"name": 1}', usage=USED), Reply(PARIS, usage=USED))
    answer = await ask(binding, "Capital?", output=City)
    assert answer.value == City("Paris", 2_100_000)
    assert answer.cost == Decimal("0.004")
    assert answer.usage.output_tokens == 1000
    assert answer.calls == 2
    assert [call.purpose for call in model.calls] == ["main", "correction"]
    said = model.requests[1].messages[-1]
    assert isinstance(said, UserMessage) and "people" in said.content
    assert len(answer.records) == 2


async def test_a_second_failure_raises_with_what_was_had():
    """After the one correction OutputInvalid carries run id, messages, usage and cost as plain data."""
    binding, model = priced(Reply("no", usage=USED), Reply("still no", usage=USED))
    with pytest.raises(OutputInvalid) as raised:
        await ask(binding, "Capital?", output=City)
    error = raised.value
    assert len(model.requests) == 2
    assert error.run_id
    assert error.cost == error.known_cost == Decimal("0.004")
    assert error.usage["output_tokens"] == 1000
    assert [message["content"] for message in error.messages if message["type"] == "assistant"] == ["no", "still no"]
    assert error.problems and error.text == "still no"


async def test_a_made_up_tool_call_is_answered_in_the_transcript():
    """A model that calls a tool nobody offered gets an answer to that call before it is asked again."""
    from agentkit import ToolCall, ToolMessage

    binding, model = priced(ToolCall("c1", "search", "{}"), "fine")
    answer = await ask(binding, "q")
    assert answer.text == "fine"
    roles = [type(message) for message in model.requests[1].messages]
    assert roles == [UserMessage, AssistantMessage, ToolMessage, UserMessage]
    assert model.requests[1].messages[2].call_id == "c1"


@pytest.mark.parametrize("prompt", ["", "  \n", [], ComposedPrompt("")])
async def test_an_empty_prompt_is_refused(prompt):
    """An empty prompt is a ConfigurationError before anything is sent."""
    binding, model = priced("x")
    with pytest.raises(ConfigurationError, match="empty"):
        await ask(binding, prompt)
    assert not model.requests


@pytest.mark.parametrize("prompt", [7, ["text"], [UserMessage("a"), None]])
async def test_a_prompt_that_is_none_is_refused_with_its_place(prompt):
    """Something that is no message is named with its index."""
    binding, _ = priced("x")
    with pytest.raises(ConfigurationError, match=r"prompt(\[\d\])?="):
        await ask(binding, prompt)


@pytest.mark.parametrize("output", [{"type": "objekt"}, 7, "City", [City]])
async def test_a_schema_that_is_none_is_refused(output):
    """What is neither a type nor a JSON Schema is refused before anything is sent."""
    binding, model = priced("x")
    with pytest.raises(ConfigurationError, match="output"):
        await ask(binding, "q", output=output)
    assert not model.requests


@pytest.mark.parametrize("model", ["gpt-5.2", ":x", "openai:", 7, None])
def test_a_binding_that_names_no_model_is_refused(model):
    """The message shows the form to use."""
    with pytest.raises(ConfigurationError, match="provider"):
        Binding(model)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base_url", "localhost:8000"),
        ("settings", {"temperature": 0}),
        ("fallback", ["openai:gpt-5.2"]),
        ("price", "cheap"),
    ],
)
def test_bad_fields_of_a_binding_are_named(field, value):
    """Each bad field of a Binding is refused at construction, by name."""
    with pytest.raises(ConfigurationError, match=field):
        Binding("openai:gpt-5.2", **{field: value})


async def test_an_unknown_provider_is_refused_with_the_nearest():
    """A misspelt provider names the one that was likely meant."""
    with pytest.raises(ConfigurationError, match="openai"):
        await ask(Binding("opnai:gpt-5.2", api_key="k"), "q")


async def test_an_unknown_model_is_refused_with_the_nearest_names():
    """A misspelt model names those near it, and how to give a price for a newer one."""
    with pytest.raises(ConfigurationError, match=r"gpt-5.*price="):
        await ask(Binding("openai:gtp-5.2", api_key="k"), "q")


async def test_an_unpriced_model_under_a_budget_prints_the_price_to_add():
    """Nothing is sent; the error shows the `price=` argument."""
    model = ScriptedModel(["x"])
    model.free = False
    with pytest.raises(ConfigurationError, match=r"price='INPUT/OUTPUT'"):
        await ask(Binding(model), "q", budget=Budget("1.00"))
    assert not model.requests


async def test_without_a_ceiling_an_unpriced_answer_has_no_cost_but_a_lower_bound():
    """Unknown is None, never 0."""
    model = ScriptedModel(["x"])
    model.free = False
    answer = await ask(Binding(model), "q")
    assert answer.cost is None
    assert not answer.cost_complete
    assert answer.known_cost == Decimal(0)


def test_a_ceiling_money_cannot_hold_is_refused():
    """`Budget("0.1234567890123")` names the rounded ceiling."""
    with pytest.raises(MoneyPrecisionError, match="0.123456789012"):
        Budget("0.1234567890123")


async def test_budget_parameter_refuses_before_sending():
    """`ask(budget=)` applies without a context and with one, beside the context's own."""
    binding, model = priced("x", price="1000/1000")
    with pytest.raises(MeterExceeded, match="cost"):
        await ask(binding, "q", budget=Budget("0.000001"))
    async with CallRuntime() as calls:
        with pytest.raises(MeterExceeded, match="cost"):
            await ask(binding, "q", ctx=calls.context(), budget=Budget("0.000001"))
        with pytest.raises(MeterExceeded, match="cost"):
            await calls.ask(binding, "q", budget=Budget("0.000001"))
    assert not model.requests


async def test_a_budget_given_twice_is_charged_once():
    """The same Budget as the runtime's, the context's and the call's is one meter."""
    budget = Budget("1.00")
    binding, _ = priced(Reply("x", usage=USED), Reply("x", usage=USED), Reply("x", usage=USED))
    async with CallRuntime(budget=budget) as calls:
        ctx = calls.context(budget=budget)
        await calls.ask(binding, "q", ctx=ctx, budget=budget)
        assert budget.spent() == Decimal("0.002")
        await ask(binding, "q", ctx=calls.context(budget=budget), budget=budget)
        assert budget.spent() == Decimal("0.004")
        await calls.ask(binding, "q", budget=budget)
        assert budget.spent() == Decimal("0.006")
    assert budget.calls == 3
    assert budget.held() == 0


async def test_settings_of_the_call_fill_over_those_of_the_binding():
    """`settings=` wins field by field; what it leaves out comes from the binding."""
    binding, model = priced("x", settings=ModelSettings(temperature=0.1, max_tokens=50))
    await ask(binding, "q", settings=ModelSettings(temperature=0.9))
    assert model.requests[0].settings == ModelSettings(temperature=0.9, max_tokens=50)


async def test_deadline_parameter_ends_a_hanging_call():
    """A deadline aborts the stream in flight; nothing stays open or held."""
    clock = ManualClock()
    model = ScriptedModel([Hang(1)])
    budget = Budget("1.00")
    from agentkit import Services

    async with CallRuntime(services=Services(clock=clock)) as calls:
        asking = asyncio.create_task(calls.ask(Binding(model, price="1/1"), "q", budget=budget, deadline=5))
        await clock.run_for(4.9)
        assert not asking.done()
        assert budget.held() > 0
        await clock.run_for(0.2)
        with pytest.raises(DeadlineExceeded) as raised:
            await asking
    assert raised.value.run_id
    assert model.open_streams == 0
    assert budget.held() == 0


async def test_an_error_of_the_model_carries_what_was_had():
    """A provider's failure has the run id, the messages so far and the cost of the failed attempt."""
    binding, _ = priced(Fault(Overloaded("busy", retryable=False), after=3))
    with pytest.raises(Overloaded) as raised:
        await ask(binding, "q")
    assert raised.value.run_id
    assert raised.value.known_cost > 0
    assert raised.value.messages[0]["content"] == "q"


async def test_ask_on_a_bare_context_uses_a_runtime_of_its_own():
    """A RunContext without services gets models and layers for that call; its tenant and budget stay."""
    binding, model = priced(Reply("x", usage=USED))
    budget = Budget("1.00")
    ctx = RunContext("req-1", Scope(tenant="acme"), budget)
    answer = await ask(binding, "q", ctx=ctx)
    assert answer.run_id == "req-1"
    assert model.calls[0].ctx.scope.tenant == "acme"
    assert budget.spent() == Decimal("0.002")


async def test_without_context_the_tenant_is_local():
    """A newcomer's call belongs to the tenant "local"."""
    binding, model = priced("x")
    await ask(binding, "q")
    assert model.calls[0].ctx.scope == Scope(tenant="local")


def test_run_sync_is_the_bridge_for_scripts():
    """The same call works from code without a loop."""
    assert run_sync(ask(Binding("scripted:hello"), "q")).text == "hello"


async def test_offline_bindings_cost_exactly_nothing():
    """`scripted:` answers its name and costs 0, also under a budget."""
    answer = await ask(Binding("scripted:hello"), "q", budget=Budget("0"))
    assert (answer.text, answer.cost, answer.provider) == ("hello", Decimal(0), "scripted")


async def test_fallback_answers_when_the_first_fails():
    """Bindings in `fallback` are tried in order; the Answer names who answered and counts the failed attempt."""
    second, _ = priced(Reply("from the second", usage=USED, model="two"))
    first, model = priced(Overloaded("down", retryable=False, accepted=False), fallback=[second])
    answer = await ask(first, "q")
    assert len(model.requests) == 1
    assert (answer.text, answer.model) == ("from the second", "two")
    assert [record.outcome for record in answer.records] == ["error", "ok"]


async def test_an_empty_answer_is_sent_back_and_then_raised():
    """An empty stop is a fault of the model to surface, not an answer."""
    binding, model = priced(Reply(""), Reply(""))
    with pytest.raises(OutputInvalid, match="empty"):
        await ask(binding, "q")
    assert len(model.requests) == 2


@pytest.mark.parametrize("reason", ["length", "context_window", "refusal", "content_filter"])
async def test_b35_an_answer_that_was_cut_or_declined_is_not_corrected(reason):
    """No second turn is paid for it; the error says how it ended, and carries what it cost."""
    binding, model = priced(Reply('{"name": "Par', usage=USED, stop_reason=reason), Reply(PARIS))
    with pytest.raises(OutputInvalid, match=f"not JSON.*stop_reason '{reason}'") as raised:
        await ask(binding, "Capital?", output=City)
    assert len(model.requests) == 1
    assert raised.value.stop_reason == reason
    assert raised.value.cost == Decimal("0.002")


async def test_an_answer_that_fits_is_taken_however_it_ended():
    """A whole answer that ends exactly at the limit is an answer; an empty one without a shape says why."""
    binding, _ = priced(Reply(PARIS, stop_reason="length"), Reply("", stop_reason="length"))
    assert (await ask(binding, "Capital?", output=City)).value == City("Paris", 2_100_000)
    with pytest.raises(OutputInvalid, match=r"empty.*raise max_tokens"):
        await ask(binding, "Capital?")


async def test_b37_a_fence_and_raw_line_breaks_are_no_mistake():
    """A right answer in one code fence, or with raw line breaks in its texts, is taken without a correction."""
    binding, model = priced('```json\n{"name": "Two\nlines\there", "people": 1}\n```')
    assert (await ask(binding, "Capital?", output=City)).value == City("Two\nlines\there", 1)
    assert len(model.requests) == 1
