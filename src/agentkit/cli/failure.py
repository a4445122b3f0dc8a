"""From an error to an exit code and a sentence that says what to do."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from agentkit.core.contracts import render_money
from agentkit.errors import (
    AgentkitError,
    AuthFailed,
    Cancelled,
    ConfigurationError,
    DeadlineExceeded,
    MeterExceeded,
    MoneyPrecisionError,
    OutputInvalid,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
    UnpricedModel,
)

__all__ = ["BAD_INPUT", "FAILED", "INTERRUPTED", "LIMIT", "NO_ANSWER", "Failure", "failure_of"]

FAILED = 1
BAD_INPUT = 2
LIMIT = 3
NO_ANSWER = 4
INTERRUPTED = 130


class Failure(msgspec.Struct, frozen=True):
    """Why a command did not answer."""

    code: int
    kind: str
    message: str
    hint: str = ""
    run_id: str | None = None
    known_cost: Decimal | None = None

    def as_json(self) -> str:
        """Return the failure as one JSON object; money is decimal text."""
        cost = None if self.known_cost is None else render_money(self.known_cost)
        body = {
            "type": self.kind,
            "message": self.message,
            "hint": self.hint,
            "exit_code": self.code,
            "run_id": self.run_id,
            "known_cost": cost,
        }
        return msgspec.json.encode({"error": body}).decode()


def failure_of(error: Exception) -> Failure | None:
    """Return what to tell about an error of ours, None for one that is a bug."""
    if isinstance(error, OSError) and not isinstance(error, AgentkitError):
        code = BAD_INPUT if error.filename else FAILED
        return Failure(code, type(error).__name__, f"{error.filename or 'output'}: {error.strerror or error}")
    if not isinstance(error, AgentkitError):
        return None
    code, hint = _judged(error)
    if error.known_cost:
        hint = f"{hint} Spent so far: ${render_money(error.known_cost)}.".strip()
    return Failure(code, type(error).__name__, error.message, hint, error.run_id, error.known_cost)


def _judged(error: AgentkitError) -> tuple[int, str]:
    if isinstance(error, RateLimited) and not error.retryable:
        return FAILED, "The account's quota or credit is used up; see the provider's billing page."
    for kind, code, hint in _VERDICTS:
        if isinstance(error, kind):
            return code, hint
    return FAILED, ""


_VERDICTS: tuple[tuple[type[AgentkitError], int, str], ...] = (
    (OutputInvalid, NO_ANSWER, "Try a larger model, more --max-tokens, or a simpler schema."),
    (Refused, NO_ANSWER, ""),
    (
        UnpricedModel,
        BAD_INPUT,
        "Add --price IN/OUT, in dollars per million tokens, such as --price 1.25/10; --price 0 is free.",
    ),
    (ConfigurationError, BAD_INPUT, ""),
    (MoneyPrecisionError, BAD_INPUT, ""),
    (MeterExceeded, LIMIT, "Raise --budget to let it go on."),
    (DeadlineExceeded, LIMIT, "Raise --timeout to give it more time."),
    (Cancelled, LIMIT, ""),
    (AuthFailed, BAD_INPUT, "The variable that holds it can be named with --api-key-env."),
    (RateLimited, FAILED, "It was tried more than once; wait a while and ask again."),
    (Overloaded, FAILED, "It was tried more than once; wait a while and ask again."),
    (ProviderError, FAILED, "Check --model and --base-url; the server may not be what they say."),
)
