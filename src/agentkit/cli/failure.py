"""From an error to an exit code and a sentence that says what to do."""

from __future__ import annotations

import msgspec

from agentkit.errors import (
    AgentkitError,
    AuthFailed,
    Cancelled,
    ConfigurationError,
    DeadlineExceeded,
    MeterExceeded,
    MoneyPrecisionError,
    OutputInvalid,
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

    def as_json(self) -> str:
        """Return the failure as one JSON object."""
        body = {"error": {"type": self.kind, "message": self.message, "hint": self.hint, "exit_code": self.code}}
        return msgspec.json.encode(body).decode()


def failure_of(error: Exception) -> Failure | None:
    """Return what to tell about an error of ours, None for one that is a bug."""
    if isinstance(error, OSError) and not isinstance(error, AgentkitError):
        return Failure(BAD_INPUT, type(error).__name__, f"{error.filename or 'input'}: {error.strerror or error}")
    if not isinstance(error, AgentkitError):
        return None
    code, hint = _judged(error)
    return Failure(code, type(error).__name__, error.message, hint)


def _judged(error: AgentkitError) -> tuple[int, str]:
    if isinstance(error, OutputInvalid):
        return NO_ANSWER, "Try a larger model, more --max-tokens, or a simpler schema."
    if isinstance(error, Refused):
        return NO_ANSWER, ""
    if isinstance(error, UnpricedModel):
        return (
            BAD_INPUT,
            "Add --price IN/OUT, in dollars per million tokens, such as --price 1.25/10; --price 0 is free.",
        )
    if isinstance(error, (ConfigurationError, MoneyPrecisionError)):
        return BAD_INPUT, ""
    if isinstance(error, MeterExceeded):
        return LIMIT, "Raise --budget to let it go on."
    if isinstance(error, (DeadlineExceeded, Cancelled)):
        return LIMIT, "Raise --timeout to give it more time." if isinstance(error, DeadlineExceeded) else ""
    if isinstance(error, AuthFailed):
        return BAD_INPUT, "Check the key: it was refused by the provider."
    if isinstance(error, RateLimited) and not error.retryable:
        return FAILED, "The account's quota or credit is used up; see the provider's billing page."
    return FAILED, ""
