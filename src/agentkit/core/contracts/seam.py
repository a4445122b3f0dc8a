"""The narrow place every model call and tool call goes through: the call, its route, and a layer's contract."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from agentkit.core.contracts.capabilities import UNKNOWN_CAPABILITIES, Capabilities
from agentkit.core.contracts.events import ChatEvent, ChatResponse, ToolResult, ToolUpdate
from agentkit.core.contracts.messages import JsonValue, ToolCall
from agentkit.core.contracts.policies import Autonomy, Effect, RunMode
from agentkit.core.contracts.pricing import Charge, CostRecord, Quote, Rates
from agentkit.core.contracts.requests import ChatRequest, ToolSpec
from agentkit.core.contracts.scope import Scope
from agentkit.core.contracts.usage import Usage

if TYPE_CHECKING:
    from agentkit.core.contracts.runs import RunEvent

__all__ = [
    "Call",
    "CallKey",
    "CallNext",
    "CancelSignal",
    "ChatCall",
    "ChatMiddleware",
    "Ctx",
    "EventSink",
    "InvokerPort",
    "LLMPort",
    "Meter",
    "Middleware",
    "Purpose",
    "Route",
    "ToolCallRequest",
    "ToolMiddleware",
    "ToolPort",
    "ToolRequest",
]

Req = TypeVar("Req")
Ev = TypeVar("Ev")
Req_co = TypeVar("Req_co", covariant=True)

Purpose: TypeAlias = str  # "main", "correction", "final", or a word of the caller's


class Route(Struct, frozen=True):
    """What a binding resolves to: the model port, the model's name there, and how it is priced.

    `rates` None asks the runtime's price source for (`provider`, `model`), unless `listed` is False: then the server
    is not the provider's own and list prices do not apply. `fallback` are the routes to try when this one fails,
    `capabilities` what is known of the model. `billing` are facts that the price depends on, such as {"region": "eu"}.
    """

    port: LLMPort
    model: str
    provider: str
    rates: Rates | None = None
    profile: object = None
    listed: bool = True
    fallback: tuple[Route, ...] = ()
    capabilities: Capabilities = UNKNOWN_CAPABILITIES
    billing: Mapping[str, str] = {}


class Call(Struct, Generic[Req_co], frozen=True):
    """One logical call on its way through the layers; a layer passes a changed copy down.

    `quote` is the bound to reserve, `attempt` counts from 1, `id` stays the same across attempts. `hedge` marks a
    request beside one in flight: a meter that cannot admit it at once refuses it, since it is not worth waiting for.
    """

    ctx: Ctx
    request: Req_co
    id: str
    route: Route | None = None
    attempt: int = 1
    purpose: Purpose = "main"
    quote: Quote | None = None
    hedge: bool = False


class CallKey(Struct, frozen=True):
    """Our identity of a tool call: never the provider's id alone. `turn` counts from 1, `position` from 0."""

    run_id: str
    path: str
    turn: int
    position: int


class ToolRequest(Struct, frozen=True):
    """One tool call with the tool it is for; `bound` are its validated arguments, None until a layer checked them.

    `decision` is a person's answer to an earlier ask, given on resume, with its reason.
    """

    tool: ToolPort
    call: ToolCall
    key: CallKey
    bound: object = None
    decision: Literal["allow", "deny"] | None = None
    decision_reason: str = ""


CallNext: TypeAlias = Callable[[Call[Req]], AsyncGenerator[Ev, None]]
ChatCall: TypeAlias = Call[ChatRequest]
ToolCallRequest: TypeAlias = Call[ToolRequest]


class Middleware(Protocol[Req, Ev]):
    """A layer: an async generator function of a call and the next layer.

    It may change the call, watch, replace or repeat the stream, or refuse. A layer that does not look at events
    returns `call_next(call)`; every other consumes it under `contextlib.aclosing`. It never yields inside a task
    group, cancel scope, timeout or attached span.
    """

    def __call__(self, call: Call[Req], call_next: CallNext[Req, Ev], /) -> AsyncGenerator[Ev, None]:
        """Return the stream of this call's events."""
        ...


ChatMiddleware: TypeAlias = Middleware[ChatRequest, ChatEvent]
ToolMiddleware: TypeAlias = Middleware[ToolRequest, ToolUpdate]


class LLMPort(Protocol):
    """A model: turns one call into a stream of chat events whose last is `ChatEnd`.

    The generator holds the connection; closing it releases the connection. Raises ProviderError kinds only.
    """

    def stream(self, call: Call[ChatRequest], /) -> AsyncGenerator[ChatEvent, None]:
        """Send `call.request` to `call.route.model` and yield its events."""
        ...


class ToolPort(Protocol):
    """A tool as the chains see it."""

    @property
    def spec(self) -> ToolSpec:
        """Return what the model sees."""
        ...

    @property
    def effect(self) -> Effect:
        """Return the kind of effect a call has; unknown is treated as the worst."""
        ...

    @property
    def idempotent(self) -> bool:
        """Return whether repeating a call with the same arguments does no harm."""
        ...

    @property
    def requires_approval(self) -> bool:
        """Return whether a person has to approve each call."""
        ...

    @property
    def timeout(self) -> float | None:
        """Return the seconds a call may take, None for no limit of its own."""
        ...

    @property
    def resumable(self) -> bool:
        """Return whether a call is a sub-agent's run, which resume descends into."""
        ...

    def bind(self, arguments: str, /) -> object:
        """Return the validated arguments of JSON text; raises ToolError naming every problem at once."""
        ...

    async def invoke(self, bound: object, call: Call[ToolRequest], /) -> ToolResult:
        """Run the tool with validated arguments."""
        ...


class CancelSignal(Protocol):
    """A tripwire shared by a tree of calls."""

    @property
    def cancelled(self) -> bool:
        """Return whether it was tripped."""
        ...

    def on_cancel(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call back once when tripped (at once when it already is); returns the function that forgets it."""
        ...


class EventSink(Protocol):
    """Where run events go; a full sink makes the producer wait."""

    async def put(self, event: RunEvent, /) -> None:
        """Hand over one event."""
        ...

    def next_seq(self) -> int:
        """Return the next number of the run's events, from 0."""
        ...


class Meter(Protocol):
    """Something that counts and may refuse. None is no verdict.

    Optional, found by name: `reserve(call)`, `settle(call, record)`, `release(call)`; `learn(call, limit)`, which hears
    the RateLimit of each answer and of each RateLimited error whose provider told one; and `unlimited`, which is True
    while no call has to ask it.
    """

    async def guard(self, call: Call[ChatRequest] | None = None, /) -> Charge | None:
        """Answer before work whether it may start."""
        ...

    async def charge(self, call: Call[ChatRequest] | None, usage: Usage, /) -> Charge | None:
        """Book what was used."""
        ...


class Ctx(Protocol):
    """The run's context as layers, ports and tools see it."""

    @property
    def correlation_id(self) -> str: ...  # noqa: D102
    @property
    def scope(self) -> Scope: ...  # noqa: D102
    @property
    def depth(self) -> int: ...  # noqa: D102
    @property
    def path(self) -> str: ...  # noqa: D102
    @property
    def autonomy(self) -> Autonomy: ...  # noqa: D102
    @property
    def mode(self) -> RunMode: ...  # noqa: D102
    @property
    def cancel(self) -> CancelSignal | None: ...  # noqa: D102
    @property
    def all_meters(self) -> Sequence[Meter]: ...  # noqa: D102
    @property
    def invoker(self) -> InvokerPort: ...  # noqa: D102

    def remaining_time(self) -> float | None:
        """Return the seconds left until the deadline, None without one."""
        ...

    def check_cancelled(self) -> None:
        """Raise Cancelled when the token is tripped, DeadlineExceeded when the deadline has passed."""
        ...

    def record(self, record: CostRecord, /) -> None:
        """Add an attempt's priced row to the run's account."""
        ...

    async def emit(
        self,
        kind: str,
        render: str = "",
        *,
        payload: JsonValue = None,
        agent: str = "",
        parent_id: str | None = None,
    ) -> None:
        """Tell observers something; never raises into the run."""
        ...


class InvokerPort(Protocol):
    """The one way to models and tools."""

    def stream(
        self, request: ChatRequest, ctx: Ctx, /, *, purpose: Purpose = "main", route: Route | None = None
    ) -> AbstractAsyncContextManager[AsyncGenerator[ChatEvent, None]]:
        """Open one call; leaving the block closes the provider's stream and settles the meters."""
        ...

    async def chat(
        self, request: ChatRequest, ctx: Ctx, /, *, purpose: Purpose = "main", route: Route | None = None
    ) -> ChatResponse:
        """Return the whole answer of one call."""
        ...

    async def invoke_tool(self, request: ToolRequest, ctx: Ctx, /) -> ToolResult:
        """Return the result of one tool call."""
        ...
