"""Structured log events with run, tenant and agent."""

from __future__ import annotations

import logging
from functools import cache
from typing import Literal, Protocol

from agentkit.core.contracts import Ctx

__all__ = ["Level", "log_event"]

Level = Literal["debug", "info", "warning", "error"]

_LOGGER = logging.getLogger("agentkit")
_LOGGER.addHandler(logging.NullHandler())  # else the standard library prints warnings of a host that configured nothing
_LEVELS: dict[Level, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class Emitter(Protocol):
    """What a structlog logger is to us."""

    def log(self, level: int, event: str, /, **fields: object) -> object:
        """Write one event."""
        ...


def log_event(
    event: str, ctx: Ctx | None = None, /, *, agent: str = "", level: Level = "info", **fields: object
) -> None:
    """Write one structlog event with the context's run, tenant and path; never raises into the run.

    The standard logger "agentkit" decides by its level; below it this costs one check and loads nothing. A host that
    configured structlog gets the event there, any other through that standard logger. Nothing is configured globally.
    """
    number = _LEVELS[level]
    if not _LOGGER.isEnabledFor(number):
        return
    if ctx is not None:
        fields = {"run": ctx.correlation_id, "tenant": ctx.scope.tenant, "path": ctx.path, **fields}
    if agent:
        fields["agent"] = agent
    try:
        _emitter(_configured()).log(number, event, **fields)
    except Exception:
        _LOGGER.exception("The log event %r could not be written", event)


def _configured() -> bool:
    import structlog

    return structlog.is_configured()


@cache
def _emitter(configured: bool) -> Emitter:
    import structlog

    if configured:
        host: Emitter = structlog.get_logger("agentkit")
        return host
    own: Emitter = structlog.wrap_logger(
        _LOGGER,
        processors=[
            lambda _logger, _method, event: {name: value for name, value in event.items() if value not in ("", None)},
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=False,
    )
    return own
