"""A Python function as a tool."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar, cast, get_args, overload
from weakref import WeakKeyDictionary

from agentkit.core.contracts import Call, Effect, ToolRequest, ToolResult, ToolSpec
from agentkit.core.contracts.text import clean_text
from agentkit.errors import Cancelled, ConfigurationError, DeadlineExceeded, EffectUnknown, MeterExceeded, ToolError
from agentkit.schema import ToolSignature
from agentkit.tools.result import MAX_RESULT_CHARS, render_result

if TYPE_CHECKING:
    from anyio import CapacityLimiter

__all__ = ["Tool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_EFFECTS: tuple[Effect, ...] = get_args(Effect)
_WORKER_THREADS = 40
_PASSED_ON = (ToolError, MeterExceeded, DeadlineExceeded, Cancelled, EffectUnknown, ConfigurationError)


class Tool(Generic[P, R]):
    """A function with what a run has to know of it; calling it calls the plain function.

    What the function raises becomes a ToolError with its type and message, which a run tells the model; what ends a
    run stays what it is: a ceiling, the deadline, the cancel token, an unknown effect, wrong wiring. A synchronous
    function runs in a worker thread, of which there are at most 40 per event loop, with the caller's context
    variables.
    """

    resumable = False

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        effect: Effect = "unknown",
        idempotent: bool = False,
        requires_approval: bool = False,
        timeout: float | None = None,
        max_result_chars: int = MAX_RESULT_CHARS,
        scope: dict[str, object] | None = None,
    ) -> None:
        self.function = function
        self.signature = ToolSignature(function, scope)
        self.name = _checked_name(self.signature.name if name is None else name)
        self.description = _described(self.name, function, description)
        if effect not in _EFFECTS:
            raise ConfigurationError(f"Tool {self.name!r}: effect={effect!r}; pass one of {', '.join(_EFFECTS)}.")
        if timeout is not None and not timeout > 0:
            raise ConfigurationError(f"Tool {self.name!r}: timeout={timeout!r}; pass seconds above 0, or leave it out.")
        if max_result_chars < 1:
            raise ConfigurationError(f"Tool {self.name!r}: max_result_chars={max_result_chars!r}; pass 1 or more.")
        self._spec: ToolSpec | None = None
        self.effect: Effect = effect
        self.idempotent = idempotent
        self.requires_approval = requires_approval
        self.timeout = timeout
        self.max_result_chars = max_result_chars
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004
        )
        self.__doc__ = self.description
        self.__name__ = self.name

    @property
    def spec(self) -> ToolSpec:
        """Return what the model sees; made on first use."""
        if self._spec is None:
            self._spec = ToolSpec(self.name, self.description, self.signature.schema)
        return self._spec

    def bind(self, arguments: str, /) -> dict[str, object]:
        """Return validated keyword arguments for JSON text; raises ToolError naming every problem at once."""
        return self.signature.bind(arguments)

    async def invoke(self, bound: object, call: Call[ToolRequest], /) -> ToolResult:
        """Run the function with validated arguments and render what it returns."""
        arguments = dict(cast("dict[str, object]", bound))
        if self.signature.context_parameter is not None:
            arguments[self.signature.context_parameter] = call.ctx
        function = cast("Callable[..., object]", self.function)
        try:
            if self.is_async:
                value = await cast("Awaitable[object]", function(**arguments))
            else:
                value = await _in_thread(partial(function, **arguments))
            return render_result(value, self.max_result_chars)
        except _PASSED_ON:
            raise
        except Exception as error:
            text = clean_text(f"{type(error).__name__}: {error}"[: self.max_result_chars])
            raise ToolError(text, tool=self.name) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise ToolError("CancelledError: something inside the tool was cancelled.", tool=self.name) from None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"tool({self.name!r}, effect={self.effect!r})"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "unknown",
    idempotent: bool = False,
    requires_approval: bool = False,
    timeout: float | None = None,
    max_result_chars: int = MAX_RESULT_CHARS,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "unknown",
    idempotent: bool = False,
    requires_approval: bool = False,
    timeout: float | None = None,
    max_result_chars: int = MAX_RESULT_CHARS,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a function a tool: its annotations are the schema, its docstring the description.

    `effect` says what a call does to the world: "read" nothing, "write" changes own data, "execute" runs code,
    "external" acts outside (sends, pays), "unknown" is treated as the worst. `idempotent` calls may be repeated.
    `timeout` is seconds. Raises ConfigurationError for a parameter without annotation, `*args`, a missing
    description, or a name that providers refuse.
    """
    scope = sys._getframe(1).f_locals

    def decorate(function: Callable[P, R]) -> Tool[P, R]:
        return Tool(
            function,
            name=name,
            description=description,
            effect=effect,
            idempotent=idempotent,
            requires_approval=requires_approval,
            timeout=timeout,
            max_result_chars=max_result_chars,
            scope=scope,
        )

    return decorate if function is None else decorate(function)


async def _in_thread(work: Callable[[], object]) -> object:
    from anyio import to_thread

    result = await to_thread.run_sync(work, abandon_on_cancel=True, limiter=_limiter())
    return await result if inspect.isawaitable(result) else result


_limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, object] = WeakKeyDictionary()


def _limiter() -> CapacityLimiter:
    from anyio import CapacityLimiter

    loop = asyncio.get_running_loop()
    limiter = _limiters.get(loop)
    if not isinstance(limiter, CapacityLimiter):
        limiter = _limiters[loop] = CapacityLimiter(_WORKER_THREADS)
    return limiter


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        suggested = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:64] or "tool"
        raise ConfigurationError(
            f"Tool name {name!r}: providers take 1 to 64 letters, digits, '_' and '-'; pass name={suggested!r}."
        )
    return name


def _described(name: str, function: Callable[..., object], description: str | None) -> str:
    text = inspect.cleandoc(description or inspect.getdoc(function) or "").strip()
    if not text or (description is None and not inspect.isroutine(function)):
        raise ConfigurationError(f"Tool {name!r} has no description; write a docstring of one sentence for the model.")
    return text
