"""The circuit breaker: when a server is left alone, who may try it again, and what it costs."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading

import pytest

from agentkit import Binding, CallRuntime
from agentkit.core.contracts import BreakerPolicy, Call, ChatRequest, RetryPolicy, Route, UserMessage
from agentkit.core.runtime.breaker import Breaker
from agentkit.core.runtime.services import Services
from agentkit.errors import AuthFailed, BadRequest, ConfigurationError, Overloaded, ProviderError, StreamBroken
from agentkit.middleware.fallback import fallback
from agentkit.middleware.meter import meter
from agentkit.middleware.retry import retry
from agentkit.observe import OtelTrace
from agentkit.testing import Fault, Hang, ManualClock, Reply, ScriptedModel, capture_spans, make_context

REQUEST = ChatRequest((UserMessage("hi"),))
DOWN = StreamBroken("connection refused", accepted=False)


class World:
    """One breaker over any number of calls to one scripted server, a clock by hand, and no retries."""

    def __init__(self, *script, attempts=1, failures=2, cooldown=30.0, name="m", routes=()) -> None:
        self.clock = ManualClock()
        self.model = ScriptedModel(list(script), clock=self.clock)
        self.breaker = Breaker(BreakerPolicy(failures=failures, cooldown=cooldown))
        policy = RetryPolicy(max_attempts=attempts, base_delay=0)
        layers = [fallback(), retry(policy, breaker=self.breaker), meter()]
        self.ctx = make_context(self.model, middleware=layers, clock=self.clock)
        self.route = Route(self.model, name, "p", fallback=tuple(routes))

    async def ask(self, route=None):
        """Return the answer's text, or the error."""
        try:
            response = await self.ctx.invoker.chat(REQUEST, self.ctx, route=route or self.route)
        except ProviderError as error:
            return error
        return response.message.content


async def test_an_open_circuit_fails_at_once_with_the_time_left():
    """After failures in a row nothing is sent until the cool-down is over; then one answer closes the circuit."""
    world = World(DOWN, DOWN, "back", "and well", failures=2, cooldown=30)
    assert [await world.ask(), await world.ask()] == [DOWN, DOWN]
    world.clock.advance(10)
    refused = await world.ask()
    assert isinstance(refused, Overloaded) and refused.code == "circuit_open"
    assert (refused.retry_after, refused.accepted, refused.retryable) == (20.0, False, True)
    assert len(world.model.requests) == 2 == len(world.ctx.account.records)
    world.clock.advance(20)
    assert [await world.ask(), await world.ask()] == ["back", "and well"]


async def test_a_failing_probe_opens_it_again_for_a_whole_cool_down():
    """One more failure is enough when the server was left alone before."""
    world = World(DOWN, DOWN, DOWN, "back")
    for _ in range(2):
        await world.ask()
    world.clock.advance(30)
    assert await world.ask() is DOWN
    assert (await world.ask()).retry_after == 30.0
    world.clock.advance(30)
    assert await world.ask() == "back"


async def test_one_call_at_a_time_tries_a_server_again():
    """While a probe is under way all others are refused; its first visible event lets them in."""
    world = World(DOWN, DOWN, Reply("one two", delay=5, pause=5), "fine")
    for _ in range(2):
        await world.ask()
    world.clock.advance(30)
    probe = asyncio.create_task(world.ask())
    await world.clock.run_for(1)
    refused = [await world.ask() for _ in range(5)]
    assert all(error.code == "circuit_open" for error in refused) and len(world.model.requests) == 3
    await world.clock.run_for(9)  # the first word is there, the answer is not
    assert not probe.done() and await world.ask() == "fine"
    await world.clock.run_for(20)
    assert await probe == "one two"


@pytest.mark.parametrize("how", ["cancelled", "dropped"])
async def test_a_probe_that_ends_without_an_answer_gives_its_place_away(how):
    """Cancelled, or forgotten without being closed: the next call may try."""
    world = World(DOWN, DOWN, Hang(), "back")
    for _ in range(2):
        await world.ask()
    world.clock.advance(30)
    if how == "cancelled":
        probe = asyncio.create_task(world.ask())
        await world.clock.run_for(0)
        probe.cancel()
        await asyncio.wait([probe])
    else:
        probe = world.breaker.enter(Call(world.ctx, REQUEST, "c", world.route))
        assert probe is not None and (await world.ask()).code == "circuit_open"
        world.model._plays.pop(2)  # no request was sent by that one
        world.model._count -= 1
        del probe
        gc.collect()
    assert await world.ask() == "back"


async def test_only_failures_of_the_server_count_and_only_in_a_row():
    """A refusal of the request, a wrong key or an answer shows that the server is there."""
    others = [BadRequest("no"), AuthFailed("no"), ProviderError("malformed", code="malformed_turn"), "an answer"]
    for other in others:
        world = World(DOWN, other, DOWN, "fine")
        for _ in range(3):
            await world.ask()
        assert await world.ask() == "fine", other


async def test_a_stream_that_breaks_after_it_began_counts_again():
    """Text shows that the server answers; what breaks after it is a failure all the same."""
    cut = Fault(StreamBroken("reset"), after=2)
    world = World(cut, cut, "fine", failures=1)
    assert isinstance(await world.ask(), StreamBroken)
    assert (await world.ask()).code == "circuit_open"


async def test_a_failing_model_does_not_close_the_others_of_its_server():
    """503 for one model says nothing of the next; a server that cannot be reached is closed for all."""
    busy = Overloaded("busy", status=503)
    world = World(busy, busy, "other", DOWN, DOWN)
    other = Route(world.model, "other", "p")
    assert [await world.ask(), await world.ask()] == [busy, busy]
    assert (await world.ask()).code == "circuit_open" and await world.ask(other) == "other"
    assert [await world.ask(other), await world.ask(other)] == [DOWN, DOWN]
    assert (await world.ask(other)).code == "circuit_open"
    assert (await world.ask(Route(world.model, "third", "p"))).code == "circuit_open"
    assert await world.ask(Route(ScriptedModel("hello"), "m", "p")) == "hello"  # another server


async def test_retries_stop_where_the_circuit_opens():
    """The failure that opens it ends the call with its own error, without a wait; a fallback answers at once."""
    world = World(*[DOWN] * 9, attempts=5, failures=2)
    error = await world.ask()
    assert error is DOWN and error.attempts == 2 and len(world.clock.slept) == 1
    second = Route(ScriptedModel("second"), "s", "p")
    assert await world.ask(Route(world.model, "m", "p", fallback=(second,))) == "second"
    assert len(world.model.requests) == 2


async def test_a_circuit_that_opened_during_a_wait_raises_the_error_that_was_waited_for():
    """Two calls fail side by side; the one that waits is not told of an open circuit but of its own failure."""
    slow, fast = Overloaded("slow", retry_after=20), Overloaded("fast")
    world = World(slow, fast, attempts=2, failures=2)
    waiting = asyncio.create_task(world.ask())
    await world.clock.run_for(0)
    assert await world.ask() is fast
    await world.clock.run_for(25)
    assert await waiting is slow and slow.attempts == 1


async def test_opening_is_told_on_the_log_and_on_the_span(caplog):
    """A warning names the server, the span of the call has an event, and closing is logged too."""
    spans = capture_spans()
    clock = ManualClock()
    model = ScriptedModel([DOWN, DOWN, "back"], clock=clock)
    services = Services(trace=OtelTrace(spans.provider), clock=clock)
    policy = BreakerPolicy(failures=2, cooldown=5)
    with caplog.at_level(logging.INFO, "agentkit"):
        async with CallRuntime(
            retry=RetryPolicy(max_attempts=2, base_delay=0), breaker=policy, services=services
        ) as calls:
            with pytest.raises(StreamBroken):
                await calls.ask(Binding(model), "hi")
            clock.advance(5)
            assert (await calls.ask(Binding(model), "hi")).text == "back"
    said = [record.getMessage() for record in caplog.records if "circuit" in record.getMessage()]
    assert said[0] == "The circuit of scripted:scripted is open after 2 failures in a row; it is tried again in 5 s."
    assert said[1] == "The circuit of scripted:scripted is closed: it answers again."
    events = [event for span in spans.spans for event in span.events if event.name == "circuit.opened"]
    assert [event.attributes["failures"] for event in events] == [2]


async def test_it_can_be_switched_off_and_the_default_is_patient():
    """Without a breaker every call is sent; with the default one it takes ten failures in a row."""
    for breaker, sent in [({"breaker": None}, 30), ({}, 10)]:
        model = ScriptedModel([DOWN], repeat_last=True)
        async with CallRuntime(retry=RetryPolicy(base_delay=0), **breaker) as calls:
            for _ in range(10):
                with pytest.raises(ProviderError):
                    await calls.ask(Binding(model), "hi")
        assert len(model.requests) == sent


async def test_circuits_are_bounded_and_gone_once_a_server_answers():
    """Thousands of servers that failed once take a bounded place; a server that answers takes none."""
    world = World("fine")
    assert await world.ask() == "fine" and not world.breaker.circuits
    for _ in range(3000):
        world.breaker.failed(Call(world.ctx, REQUEST, "c", Route(ScriptedModel("x"), "m", "p")), DOWN)
    assert len(world.breaker.circuits) <= 1024


def test_threads_share_a_breaker_and_probe_once():
    """Many threads at an open circuit whose time is over: exactly one is let through."""
    world = World("x", failures=1)
    call = Call(world.ctx, REQUEST, "c", world.route)
    for _ in range(50):
        world.breaker.failed(call, DOWN)
        world.clock.advance(31)
        probes, refused, ready = [], [], threading.Barrier(8)

        def enter(probes=probes, refused=refused, ready=ready) -> None:
            ready.wait()
            try:
                probes.append(world.breaker.enter(call))
            except Overloaded as error:
                refused.append(error)

        threads = [threading.Thread(target=enter) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(probes) == 1 and len(refused) == 7
        world.breaker.succeeded(call)


@pytest.mark.parametrize(
    ("field", "value"), [("failures", 0), ("failures", True), ("cooldown", 0), ("cooldown", float("inf"))]
)
def test_a_policy_that_means_nothing_names_its_field(field, value):
    """A breaker that never opens is `breaker=None`, not a number."""
    with pytest.raises(ConfigurationError, match=f"BreakerPolicy\\({field}="):
        BreakerPolicy(**{field: value})
