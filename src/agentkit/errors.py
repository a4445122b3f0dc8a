"""Every error agentkit raises.

AgentkitError
├── ConfigurationError          wrong wiring or input, found before anything was sent
│   ├── CapabilityMissing       the model is known to lack what the request needs
│   └── UnpricedModel           a money ceiling applies and the model has no price
├── MoneyPrecisionError         an amount that cannot be held exactly (also ValueError)
├── MeterExceeded               a ceiling was reached (also RuntimeError)
├── DeadlineExceeded            the run's deadline passed (also TimeoutError)
├── Cancelled                   the run's token was tripped (not asyncio.CancelledError)
├── PolicyDenied                a policy said no
├── ProviderError               the model's side failed
│   ├── AuthFailed              key missing, wrong or without rights
│   ├── RateLimited             too many requests, or the account's quota is used up
│   ├── Overloaded              the server is up but cannot take the request now
│   ├── BadRequest              the server will never accept this request
│   ├── ContextOverflow         the conversation does not fit the model's window
│   ├── Refused                 the model or a filter declined to answer
│   └── StreamBroken            the connection or stream ended without its end marker
├── ToolError                   a tool could not be called or failed
├── OutputInvalid               the answer does not fit the declared output
├── StoreError                  a store could not read or write
├── RunConflict                 another holder, revision or unfinished run is in the way
└── EffectUnknown               a side effect may or may not have happened
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal

__all__ = [
    "AgentkitError",
    "AuthFailed",
    "BadRequest",
    "Cancelled",
    "CapabilityMissing",
    "ConfigurationError",
    "ContextOverflow",
    "DeadlineExceeded",
    "EffectUnknown",
    "MeterExceeded",
    "MoneyPrecisionError",
    "OutputInvalid",
    "Overloaded",
    "PolicyDenied",
    "ProviderError",
    "RateLimited",
    "Refused",
    "RunConflict",
    "StoreError",
    "StreamBroken",
    "ToolError",
    "UnpricedModel",
]


class AgentkitError(Exception):
    """Root of every error of this package; carries what the run had so far as plain data.

    `messages` and `usage` are builtin lists, dicts and numbers; `cost` is US dollars, None when a part is
    unpriced, with the lower bound in `known_cost`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.run_id: str | None = None
        self.messages: Sequence[Mapping[str, object]] = ()
        self.usage: Mapping[str, object] = {}
        self.cost: Decimal | None = None
        self.known_cost: Decimal | None = None


class ConfigurationError(AgentkitError, ValueError):
    """Wiring or input is wrong; raised before anything is sent or lost."""


class CapabilityMissing(ConfigurationError):
    """The model is known to lack what the request needs; `capability` names it as `Capabilities` does.

    Raised before anything is sent and before any tool ran, when none of the binding's fallbacks has it either.
    """

    def __init__(self, message: str, *, capability: str = "", model: str = "", provider: str = "") -> None:
        super().__init__(message)
        self.capability = capability
        self.model = model
        self.provider = provider


class UnpricedModel(ConfigurationError):
    """A money ceiling applies and the model has no price; give it with `price=`, in dollars per million tokens."""


class MoneyPrecisionError(AgentkitError, ValueError):
    """An amount is not finite, not a number, or has more places than money keeps."""


class MeterExceeded(AgentkitError, RuntimeError):
    """A ceiling refused the next step; `axis` names it (cost, calls, tokens, depth, ...).

    `suspends` says that the meter wants a run to stop and stay resumable rather than to fail. `partial` is the text of
    an answer that was cut in the middle.
    """

    def __init__(self, message: str, *, axis: str = "", suspends: bool = False) -> None:
        super().__init__(message)
        self.axis = axis
        self.suspends = suspends
        self.partial = ""


class DeadlineExceeded(AgentkitError, TimeoutError):
    """The deadline passed; what was in flight has been aborted and settled."""


class Cancelled(AgentkitError):
    """The run's cancellation token was tripped; deliberately unrelated to asyncio.CancelledError."""


class PolicyDenied(AgentkitError):
    """A policy denied the call; `reason` is safe to show."""

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class ProviderError(AgentkitError):
    """The model's side failed.

    `retryable` says whether the same request may succeed later; `accepted` is False only when the provider
    provably did no work; `retry_after` is seconds; texts never contain credentials. `attempts` counts the requests
    made for the call, 0 when nobody counted; `tried` tells of each model of the binding in order: `provider`,
    `model`, and either `error`, `message`, `status`, `code` and `attempts`, or why it was `skipped`. `raw_usage`,
    `service_tier` and `billing` are what the provider had told of the bill, `rate_limit` what of its limits, as plain
    data under the names of `Reported` and `RateLimit`.
    """

    retryable_by_default = True

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        model: str = "",
        status: int | None = None,
        code: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        retryable: bool | None = None,
        accepted: bool | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.model = model
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after = retry_after
        self.retryable = self.retryable_by_default if retryable is None else retryable
        self.accepted = accepted
        self.headers: Mapping[str, str] = headers or {}
        self.attempts = 0
        self.tried: Sequence[Mapping[str, object]] = ()
        self.raw_usage: Mapping[str, object] | None = None
        self.service_tier: str | None = None
        self.billing: Mapping[str, str] = {}
        self.rate_limit: Mapping[str, float | None] = {}

    def __str__(self) -> str:
        if self.attempts < 2 and len(self.tried) < 2:
            return self.message
        names = ", ".join(f"{one['provider']}:{one['model']}" for one in self.tried)
        requests = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"{self.message} (after {requests}{f' with {names}' if names else ''})"


class AuthFailed(ProviderError):
    """The key is missing, wrong or lacks a right; never retried."""

    retryable_by_default = False


class RateLimited(ProviderError):
    """Too many requests (retryable), or the account's quota or credit is used up (not retryable)."""


class Overloaded(ProviderError):
    """The server cannot take the request now, or failed inside (5xx)."""


class BadRequest(ProviderError):
    """The server will never accept this request as it is."""

    retryable_by_default = False


class ContextOverflow(BadRequest):
    """The conversation, tools and reserved output do not fit the model's window."""


class Refused(ProviderError):
    """The model refused or a content filter cut the answer; `text` is what it said. Usage is still billed."""

    retryable_by_default = False

    def __init__(self, message: str, *, text: str = "", provider: str = "", model: str = "") -> None:
        super().__init__(message, provider=provider, model=model, accepted=True)
        self.text = text


class StreamBroken(ProviderError):
    """The connection failed, stalled, or the stream ended without its end marker."""


class ToolError(AgentkitError):
    """A tool could not be called or failed; `hint` tells the model what would work."""

    def __init__(self, message: str, *, tool: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.tool = tool
        self.hint = hint


class OutputInvalid(AgentkitError, ValueError):
    """The answer does not fit the declared output; `problems` are paths with reasons, `text` a bounded head.

    `stop_reason` is how the model ended; a cut answer is told as such in the message.
    """

    def __init__(self, message: str, *, problems: Sequence[str] = (), text: str = "") -> None:
        super().__init__(message)
        self.problems = tuple(problems)
        self.text = text
        self.stop_reason = ""

    def ended(self, stop_reason: str, why: str = "") -> None:
        """Note how the model ended the answer, and `why` it does not fit where that explains it."""
        self.stop_reason = stop_reason
        if why:
            self.message = f"{self.message} The answer ended with stop_reason {stop_reason!r}: {why}."
            self.args = (self.message,)


class StoreError(AgentkitError):
    """A store could not read or write; never means that there is nothing stored."""


class RunConflict(AgentkitError):
    """Another holder, another revision, or an unfinished run of this id is in the way."""


class EffectUnknown(AgentkitError):
    """A side effect may or may not have happened; a host has to reconcile it before the run goes on."""
