"""Choices a host makes once, as closed sets and small values."""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

from msgspec import Struct

from agentkit.errors import ConfigurationError

__all__ = [
    "Autonomy",
    "Decision",
    "Effect",
    "Mode",
    "NativeToolPolicy",
    "OnExceeded",
    "RetryPolicy",
    "RunMode",
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
    never under the server's Retry-After. Raises ConfigurationError for values that cannot mean anything.
    """

    max_attempts: int = 3
    base_delay: float = 0.5
    max_delay: float = 30.0

    def __post_init__(self) -> None:
        attempts: object = self.max_attempts
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise ConfigurationError(f"RetryPolicy(max_attempts={self.max_attempts!r}): pass 1 (no retry) or more.")
        if not 0 <= self.base_delay <= self.max_delay:
            raise ConfigurationError(
                f"RetryPolicy(base_delay={self.base_delay!r}, max_delay={self.max_delay!r}): "
                "pass seconds with 0 <= base_delay <= max_delay."
            )
