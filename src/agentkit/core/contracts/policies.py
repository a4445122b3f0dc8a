"""Choices a host makes once, as closed sets and small values."""

from __future__ import annotations

import math
from enum import Enum
from typing import Literal, TypeAlias

from msgspec import Struct

from agentkit.errors import ConfigurationError

__all__ = [
    "Autonomy",
    "BreakerPolicy",
    "Decision",
    "Effect",
    "HedgePolicy",
    "Mode",
    "NativeToolPolicy",
    "OnExceeded",
    "RetryPolicy",
    "RunMode",
    "Timeouts",
    "UnpricedPolicy",
]

Autonomy: TypeAlias = Literal["auto", "gated", "manual"]
RunMode: TypeAlias = Literal["act", "plan"]
Effect: TypeAlias = Literal["read", "write", "execute", "external", "unknown"]
OnExceeded: TypeAlias = Literal["raise", "stop"]


class Mode(Enum):
    """How a binding reaches its model: over an API, or through a vendor's command-line program."""

    API = "api"
    CLI = "cli"


class NativeToolPolicy(Enum):
    """What to do with an adapter that runs tools of its own, past our tool chain.

    DENY refuses one that cannot switch them off, WARN warns once a runtime, ALLOW says nothing.
    """

    DENY = "deny"
    WARN = "warn"
    ALLOW = "allow"


class UnpricedPolicy(Enum):
    """What to do with a model without a price while a money ceiling applies.

    REFUSE raises before the first send, WARN warns and runs, ALLOW runs; both leave the total incomplete.
    """

    REFUSE = "refuse"
    WARN = "warn"
    ALLOW = "allow"


class Decision(Struct, frozen=True):
    """A policy's or a person's answer: allow, deny with a reason, or ask a person."""

    verdict: Literal["allow", "deny", "ask"]
    reason: str = ""
    actor: str = ""

    @classmethod
    def allow(cls, reason: str = "", *, actor: str = "") -> Decision:
        """Return a decision that lets the call go on."""
        return cls("allow", reason, actor)

    @classmethod
    def deny(cls, reason: str = "", *, actor: str = "") -> Decision:
        """Return a decision that refuses the call; the model is told the reason."""
        return cls("deny", reason, actor)

    @classmethod
    def ask(cls, reason: str = "") -> Decision:
        """Return a decision that suspends the call until a person decides."""
        return cls("ask", reason)


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often and how patiently a failed attempt is repeated.

    `max_attempts` counts the first one; delays are seconds: full jitter below min(max_delay, base_delay * 2**n),
    never under the server's Retry-After. A Retry-After longer than `max_retry_after` is not waited out: the error is
    raised at once, with the hint on it. Left out, a hint may be as long as the deadline allows, two minutes without a
    deadline, and no longer than `max_delay` while the binding has a fallback left. `max_elapsed` is the time from the
    first attempt's start after which no other one begins. Raises ConfigurationError for values that cannot mean
    anything.
    """

    max_attempts: int = 3
    base_delay: float = 0.5
    max_delay: float = 30.0
    max_retry_after: float | None = None
    max_elapsed: float | None = None

    def __post_init__(self) -> None:
        _whole("RetryPolicy", "max_attempts", self.max_attempts, "1 (no retry) or more")
        if not 0 <= self.base_delay <= self.max_delay:
            raise ConfigurationError(
                f"RetryPolicy(base_delay={self.base_delay!r}, max_delay={self.max_delay!r}): "
                "pass seconds with 0 <= base_delay <= max_delay."
            )
        for name in ("max_retry_after", "max_elapsed"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ConfigurationError(f"RetryPolicy({name}={value!r}): pass seconds from 0 on, or leave it out.")


class BreakerPolicy(Struct, frozen=True, kw_only=True):
    """When a server that fails is left alone: after `failures` in a row, for `cooldown` seconds.

    Then one call at a time is let through until one succeeds. Raises ConfigurationError for values that cannot mean
    anything.
    """

    failures: int = 10
    cooldown: float = 10.0

    def __post_init__(self) -> None:
        _whole("BreakerPolicy", "failures", self.failures, "1 or more")
        if not 0 < self.cooldown < float("inf"):
            raise ConfigurationError(f"BreakerPolicy(cooldown={self.cooldown!r}): pass seconds above 0.")


class HedgePolicy(Struct, frozen=True, kw_only=True):
    """When a second request is sent beside a slow one: `after` seconds without a first visible event.

    It goes to the same model, or to the binding's first fallback. Raises ConfigurationError for values that cannot
    mean anything.
    """

    after: float
    to: Literal["same", "fallback"] = "same"

    def __post_init__(self) -> None:
        if not 0 <= self.after < float("inf"):
            raise ConfigurationError(f"HedgePolicy(after={self.after!r}): pass seconds from 0 on.")
        if self.to not in ("same", "fallback"):
            raise ConfigurationError(f"HedgePolicy(to={self.to!r}): pass 'same' or 'fallback'.")


def _whole(owner: str, name: str, value: object, wanted: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{owner}({name}={value!r}): pass {wanted}.")


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long an attempt may wait for a server, in seconds; None is no limit.

    `connect` is until a connection stands (name, TCP, proxy and TLS together), `write` until the server has taken the
    whole request, `idle` without a single byte of the answer (comments and pings are bytes), `total` from the start of
    an attempt to its end. Waiting for a free connection counts for `total` alone. Raises ConfigurationError for values
    that cannot mean anything.
    """

    connect: float | None = 10.0
    write: float | None = 300.0
    idle: float | None = 600.0
    total: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            seconds: object = getattr(self, name)
            if seconds is not None and not _is_duration(seconds):
                raise ConfigurationError(f"Timeouts({name}={seconds!r}): pass seconds above 0, or None for no limit.")


def _is_duration(seconds: object) -> bool:
    return isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds < math.inf
