"""The runtime of a process: pooled clients, prices, limits, default layers, and the calls made with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, overload

from agentkit.calls.admission import Acquire, Admission
from agentkit.calls.answer import Answer, to_answer
from agentkit.calls.binding import Binding
from agentkit.calls.entry import Tools, Work, ask_work, new_run_id, placed, run_work
from agentkit.calls.pool import ModelPool
from agentkit.calls.stacks import default_chat_stack, default_tool_stack
from agentkit.catalog import DEFAULT_CAPABILITIES, DEFAULT_PRICES, CapabilityTable, Price, load_prices, parse_price
from agentkit.cognition import DEFAULT_MAX_TURNS, RunStream
from agentkit.core.contracts import (
    AgentResult,
    Autonomy,
    BreakerPolicy,
    ChatMiddleware,
    EventSink,
    HedgePolicy,
    Meter,
    ModeAdapter,
    ModelSettings,
    NativeToolPolicy,
    PriceSource,
    Prompt,
    RetryPolicy,
    RunMode,
    Scope,
    Timeouts,
    ToolMiddleware,
    UnpricedPolicy,
)
from agentkit.core.runtime.cancel import CancellationToken
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.deadline import DeadlineLike
from agentkit.core.runtime.invoker import Invoker
from agentkit.core.runtime.metering.budget import Budget
from agentkit.core.runtime.metering.quota import Quota
from agentkit.core.runtime.services import Services
from agentkit.core.runtime.telemetry.masking import ArgumentMasker, Masker, ResultMasker
from agentkit.durable import PatientLedger
from agentkit.errors import ConfigurationError, StoreError
from agentkit.observe import OtelTrace
from agentkit.stores import Store, open_store

__all__ = ["CallRuntime"]

T = TypeVar("T")

_LOCAL = Scope(tenant="local")


class CallRuntime:
    """One a process: `async with CallRuntime() as calls`.

    It owns pooled clients, the store it opened and the adapters it was given, and closes them when the block ends;
    a call outside the block holds them for that call alone. `budget` is one budget for the runtime's life and `quota`
    one per tenant: contexts and calls may add their own, and all of them apply. `store` is "sqlite:FILE", "memory:",
    "postgresql://..." or a Store; suspended runs are kept in memory when it is left out. `pricing` is a price table or
    its TOML file; `fallback_price` is the most a model without a price is taken to cost: under a ceiling it runs, and
    that much is counted for good. `timeouts` hold for bindings without their own; `retry` says how failed attempts are
    repeated, `breaker` when a failing server is left alone, `hedge` when a second request is sent beside a slow one
    (None: never). Further layers go between policy and retry.
    """

    def __init__(
        self,
        *,
        adapters: Mapping[str, ModeAdapter] | None = None,
        pricing: PriceSource | str | Path | None = None,
        capabilities: CapabilityTable = DEFAULT_CAPABILITIES,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008
        breaker: BreakerPolicy | None = BreakerPolicy(),  # noqa: B008
        hedge: HedgePolicy | None = None,
        capture_text: bool = False,
        native_tool_policy: NativeToolPolicy = NativeToolPolicy.WARN,
        unpriced_policy: UnpricedPolicy = UnpricedPolicy.REFUSE,
        fallback_price: Price | None = None,
        max_concurrent_cli: int = 8,
        acquire: Acquire | None = None,
        argument_masker: ArgumentMasker | None = None,
        result_masker: ResultMasker | None = None,
        budget: Budget | None = None,
        quota: Quota | None = None,
        store: str | Store | None = None,
        services: Services | None = None,
        timeouts: Timeouts | None = None,
        chat_middleware: Sequence[ChatMiddleware] = (),
        tool_middleware: Sequence[ToolMiddleware] = (),
    ) -> None:
        self.budget = budget
        self.quota = quota
        self._pool = ModelPool(
            adapters=adapters or {},
            native_tool_policy=native_tool_policy,
            prices=(prices := _prices(pricing)),
            capabilities=capabilities,
            unpriced_policy=unpriced_policy,
            timeouts=timeouts,
        )
        self._owns_store = not isinstance(store, Store)
        self._store = store if isinstance(store, Store) else open_store(store or "memory:")
        self._ledger = PatientLedger(self._store.ledger)
        invoker = Invoker(
            chat_middleware=default_chat_stack(
                prices,
                retry_policy=retry,
                breaker_policy=breaker,
                hedge_policy=hedge,
                unpriced_policy=unpriced_policy,
                fallback_price=None if fallback_price is None else parse_price(fallback_price),
                capture_text=capture_text,
                admission=Admission(acquire, max_concurrent_cli),
                extra=chat_middleware,
            ),
            tool_middleware=default_tool_stack(retry_policy=retry, capture_text=capture_text, extra=tool_middleware),
        )
        self._invoker = invoker
        self._trace = OtelTrace()
        self._masker = Masker(argument_masker, result_masker) if argument_masker or result_masker else None
        self.services = self.completed((services or Services()).replace(models=self._pool))
        self._entered = False
        self._closed = False
        self._active = 0

    def completed(self, given: Services) -> Services:
        """Return these services with what they lack taken from this runtime; its maskers always apply."""
        changes: dict[str, object] = {}
        if given.models is None:
            changes["models"] = self._pool
        if given.invoker is None:
            changes["invoker"] = self._invoker
        if given.store is None:
            changes["store"] = self._store.kv
        if given.checkpointer is None:
            changes["checkpointer"] = self._store.run_log
        if given.ledger is None and self._store.durable:
            changes["ledger"] = self._ledger
        if not given.traced:
            changes["trace"] = self._trace
        if self._masker is not None:
            changes["masker"] = self._masker
        return given.replace(**changes) if changes else given

    async def __aenter__(self) -> CallRuntime:
        self._check_open()
        self._entered = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close clients, adapters and the store this runtime opened; may be called twice."""
        if self._closed:
            return
        self._closed = True
        await self._pool.aclose()
        with suppress(StoreError):  # it is logged with every end that is kept
            await self._ledger.flush()
        if self._owns_store:
            await self._store.aclose()

    def context(
        self,
        correlation_id: str | None = None,
        scope: Scope | None = None,
        *,
        budget: Budget | None = None,
        meters: Sequence[Meter] = (),
        services: Services | None = None,
        cancel: CancellationToken | None = None,
        autonomy: Autonomy = "auto",
        mode: RunMode = "act",
        deadline: DeadlineLike = None,
    ) -> RunContext:
        """Return the context of one request; the runtime's budget and quota apply beside the request's own.

        Without a run id one is made up; without a scope the tenant is "local". What `services` lack comes from the
        runtime.
        """
        self._check_open()
        own = Budget() if budget is None else budget
        shared = [each for each in (self.budget, self.quota) if each is not None and each is not own]
        return RunContext(
            new_run_id() if correlation_id is None else correlation_id,
            _LOCAL if scope is None else scope,
            own,
            self.services if services is None else self.completed(services),
            [*shared, *meters],
            cancel=cancel,
            autonomy=autonomy,
            mode=mode,
            deadline=deadline,
        )

    @overload
    async def ask(
        self,
        binding: Binding,
        prompt: Prompt,
        output: None = None,
        *,
        ctx: RunContext | None = None,
        budget: Budget | None = None,
        instructions: str | None = None,
        settings: ModelSettings | None = None,
        deadline: DeadlineLike = None,
    ) -> Answer[str]: ...

    @overload
    async def ask(
        self,
        binding: Binding,
        prompt: Prompt,
        output: type[T],
        *,
        ctx: RunContext | None = None,
        budget: Budget | None = None,
        instructions: str | None = None,
        settings: ModelSettings | None = None,
        deadline: DeadlineLike = None,
    ) -> Answer[T]: ...

    @overload
    async def ask(
        self,
        binding: Binding,
        prompt: Prompt,
        output: object,
        *,
        ctx: RunContext | None = None,
        budget: Budget | None = None,
        instructions: str | None = None,
        settings: ModelSettings | None = None,
        deadline: DeadlineLike = None,
    ) -> Answer[object]: ...

    async def ask(
        self,
        binding: Binding,
        prompt: Prompt,
        output: object = None,
        *,
        ctx: RunContext | None = None,
        budget: Budget | None = None,
        instructions: str | None = None,
        settings: ModelSettings | None = None,
        deadline: DeadlineLike = None,
    ) -> Answer[object]:
        """Ask once and return the answer, validated when `output` is a type or JSON Schema.

        An answer that does not fit is sent back once, unless it was cut or declined; what that costs is in the Answer.
        Raises OutputInvalid when it still does not fit, and every ProviderError, MeterExceeded, DeadlineExceeded and
        Cancelled.
        """
        work = ask_work(binding, prompt, output, instructions, settings)
        return to_answer(await self._do(work, ctx, budget, deadline))

    @overload
    async def run(
        self,
        binding: Binding,
        prompt: Prompt,
        tools: Tools | None = None,
        *,
        output: None = None,
        ctx: RunContext | None = None,
        budget: Budget | None = None,
        instructions: str | None = None,
        max_turns: int = DEFAULT_MAX_TURNS,
        settings: ModelSettings | None = None,
        deadline: DeadlineLike = None,
    ) -> Answer[str]: ...

    @overload
    async def run(
        self,
        binding: Binding,
        prompt: Prompt,
        tools: Tools | None = None,
        *,
        output: type[T],
        ctx: RunContext | None = None,
        budget: Budget | None = None,
        instructions: str | None = None,
        max_turns: int = DEFAULT_MAX_TURNS,
        settings: ModelSettings | None = None,
        deadline: DeadlineLike = None,
    ) -> Answer[T]: ...

    @overload
    async def run(
        self,
        binding: Binding,
        prompt: Prompt,
        tools: Tools | None = None,
        *,
        output: object,
        ctx: RunContext | None = None,
        budget: Budget | None = None,
        instructions: str | None = None,
        max_turns: int = DEFAULT_MAX_TURNS,
        settings: ModelSettings | None = None,
        deadline: DeadlineLike = None,
    ) -> Answer[object]: ...

    async def run(
        self,
        binding: Binding,
        prompt: Prompt,
        tools: Tools | None = None,
        *,
        output: object = None,
        ctx: RunContext | None = None,
        budget: Budget | None = None,
        instructions: str | None = None,
        max_turns: int = DEFAULT_MAX_TURNS,
        settings: ModelSettings | None = None,
        deadline: DeadlineLike = None,
    ) -> Answer[object]:
        """Run the tool loop until the model answers, at most `max_turns` turns and one last answer without tools.

        Raises what `ask` raises; a tool's failure is told to the model instead.
        """
        work = run_work(binding, prompt, tools, output, instructions, settings, max_turns)
        return to_answer(await self._do(work, ctx, budget, deadline))

    def stream(
        self,
        binding: Binding,
        prompt: Prompt,
        tools: Tools | None = None,
        *,
        output: object = None,
        ctx: RunContext | None = None,
        budget: Budget | None = None,
        instructions: str | None = None,
        max_turns: int = DEFAULT_MAX_TURNS,
        settings: ModelSettings | None = None,
        deadline: DeadlineLike = None,
    ) -> RunStream[object]:
        """Ask, or run the tool loop when there are tools, while telling the run's events.

        Use it as `async with calls.stream(...) as events`; `events.result` is there after the last event.
        """
        if tools is None:
            work = ask_work(binding, prompt, output, instructions, settings)
        else:
            work = run_work(binding, prompt, tools, output, instructions, settings, max_turns)

        async def begin(sink: EventSink) -> AgentResult[object]:
            return await self._do(work, ctx, budget, deadline, sink)

        return RunStream(begin)

    async def _do(
        self,
        work: Work,
        ctx: RunContext | None,
        budget: Budget | None,
        deadline: DeadlineLike,
        sink: EventSink | None = None,
    ) -> AgentResult[object]:
        self._check_open()
        if ctx is None:
            place = self.context(budget=budget).limited(deadline=deadline, sink=sink)
        else:
            place = self._adopted(placed(ctx, budget, deadline, sink))
        self._active += 1
        try:
            return await work.perform(place)
        finally:
            self._active -= 1
            if not (self._entered or self._active):
                await self._pool.aclose()

    def _adopted(self, place: RunContext) -> RunContext:
        """Return a context made elsewhere with this runtime's meters and what its services lack."""
        place.services = self.completed(place.services)
        known = place.all_meters
        own = [each for each in (self.budget, self.quota) if each is not None]
        missing = [each for each in own if not any(each is other for other in known)]
        if missing:
            place.meters = [*missing, *place.meters]
        return place

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigurationError("This CallRuntime is closed; make a new one.")


def _prices(pricing: PriceSource | str | Path | None) -> PriceSource:
    pricing = DEFAULT_PRICES if pricing is None else pricing
    return load_prices(pricing) if isinstance(pricing, (str, Path)) else pricing
