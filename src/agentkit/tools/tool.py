"""A Python function as a tool."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from typing import Generic, ParamSpec, TypeVar, get_args, overload

from agentkit.core.contracts import Call, Effect, ToolRequest, ToolResult, ToolSpec
from agentkit.errors import Cancelled, ConfigurationError, DeadlineExceeded, EffectUnknown, MeterExceeded, ToolError
from agentkit.schema import ToolSignature
from agentkit.schema.annotations import plain_function
from agentkit.tools.result import MAX_RESULT_CHARS, describe_error, render_result
from agentkit.tools.thread import in_thread

__all__ = ["Tool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_EFFECTS: tuple[Effect, ...] = get_args(Effect)
_PASSED_ON = (ToolError, MeterExceeded, DeadlineExceeded, Cancelled, EffectUnknown, ConfigurationError)


class Tool(Generic[P, R]):
    """A function with what a run has to know of it; calling it calls the plain function. It cannot be changed.

    What the function raises becomes a ToolError with its type and message, which a run tells the model; what ends a
    run stays what it is, also out of a task group: a ceiling, the deadline, the cancel token, an unknown effect,
    wrong wiring. A synchronous function runs in a worker thread, of which there are at most 40 per event loop, with
    the caller's context variables.
    """

    function: Callable[P, R]
    signature: ToolSignature
    name: str
    description: str
    effect: Effect
    idempotent: bool
    requires_approval: bool
    timeout: float | None
    max_result_chars: int
    is_async: bool
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
        scope: Mapping[str, object] | None = None,
    ) -> None:
        signature = ToolSignature(function, scope)
        name = _checked_name(signature.name if name is None else name)
        _check_values(name, function, effect, timeout, max_result_chars)
        description = _described(name, function, description)
        vars(self).update(
            function=function,
            signature=signature,
            name=name,
            description=description,
            effect=effect,
            idempotent=idempotent,
            requires_approval=requires_approval,
            timeout=timeout,
            max_result_chars=max_result_chars,
            is_async=inspect.iscoroutinefunction(plain_function(function)),
            __doc__=description,
            __name__=name,
        )

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError(f"Tool {self.name!r} cannot be changed; make another one with tool(function, ...).")

    @property
    def spec(self) -> ToolSpec:
        """Return what the model sees; made on first use."""
        return self._spec

    @cached_property
    def _spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.signature.schema)

    def bind(self, arguments: str, /) -> dict[str, object]:
        """Return validated keyword arguments for JSON text; raises ToolError naming every problem at once."""
        return self.signature.bind(arguments)

    async def invoke(self, bound: object, call: Call[ToolRequest], /) -> ToolResult:
        """Run the function with validated arguments and render what it returns."""
        arguments: dict[str, object] = bound  # type: ignore[assignment]
        context = self.signature.context_parameter
        if context is not None:
            arguments = {**arguments, context: call.ctx}
        function: Callable[..., Awaitable[object]] = self.function  # type: ignore[assignment]
        try:
            if self.is_async:
                value: object = await function(**arguments)
            else:
                value = await in_thread(partial(function, **arguments))
                if inspect.isawaitable(value):
                    value = await value
            return render_result(value, self.max_result_chars)
        except _PASSED_ON:
            raise
        except ExceptionGroup as group:
            raise _ending(group) or self._failed(group) from group
        except (Exception, SystemExit) as error:
            raise self._failed(error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise ToolError("CancelledError: something inside the tool was cancelled.", tool=self.name) from None

    def _failed(self, error: BaseException) -> ToolError:
        return ToolError(describe_error(error, self.max_result_chars), tool=self.name)

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
    `timeout` is seconds. A result longer than `max_result_chars` loses its middle, with a note of how much; the
    results of one turn share MAX_BATCH_CHARS, the longest ones giving way. Raises ConfigurationError
    for a parameter without annotation, `*args`, a missing description, or a name that providers refuse.
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


def _ending(group: ExceptionGroup[Exception]) -> Exception | None:
    """Return the first error in a group that ends the run or was meant for the model, None when there is none."""
    for error in group.exceptions:
        found = _ending(error) if isinstance(error, ExceptionGroup) else error
        if isinstance(found, _PASSED_ON):
            return found
    return None


def _check_values(
    name: str, function: Callable[..., object], effect: object, timeout: float | None, max_result_chars: int
) -> None:
    if effect not in _EFFECTS:
        raise ConfigurationError(f"Tool {name!r}: effect={effect!r}; pass one of {', '.join(_EFFECTS)}.")
    if timeout is not None and not timeout > 0:
        raise ConfigurationError(f"Tool {name!r}: timeout={timeout!r}; pass seconds above 0, or leave it out.")
    if max_result_chars < 1:
        raise ConfigurationError(f"Tool {name!r}: max_result_chars={max_result_chars!r}; pass 1 or more.")
    plain = plain_function(function)
    if inspect.isasyncgenfunction(plain) or inspect.isgeneratorfunction(plain):
        raise ConfigurationError(f"Tool {name!r} is a generator; return the whole result instead of yielding it.")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        suggested = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:64] or "tool"
        raise ConfigurationError(
            f"Tool name {name!r}: providers take 1 to 64 letters, digits, '_' and '-'; pass name={suggested!r}."
        )
    return name


def _described(name: str, function: Callable[..., object], description: str | None) -> str:
    text = inspect.cleandoc(description or plain_function(function).__doc__ or "").strip()
    if not text:
        raise ConfigurationError(f"Tool {name!r} has no description; write a docstring of one sentence for the model.")
    return text
