"""How much an attempt may write: output caps that fit, and bounds that are changed while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from msgspec.structs import replace

from agentkit.catalog import bound
from agentkit.core.contracts import (
    ZERO,
    Call,
    ChatRequest,
    Meter,
    ModelSettings,
    Quote,
    Rates,
    divide_money,
    multiply_money,
    subtract_money,
)
from agentkit.core.runtime.metering.attempt import Attempt, resize
from agentkit.errors import ConfigurationError

__all__ = ["capped", "check_bounded", "is_strict", "lower_cap", "quote_of", "strict_cap"]

_LEAST_OUTPUT = 64  # fewer tokens than this are no answer: a strict budget refuses instead
_STRICT_OUTPUT = 8_192  # the cap a strict budget starts from when the request names none
_PER_TOKEN = Decimal("0.000001")
_UNBOUNDED: frozenset[str] = frozenset(
    {"model", "models", "max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict"}
    | {"options", "n", "best_of", "generation_config", "generationConfig"}
    | {"previous_response_id", "conversation", "prompt", "input", "messages"}
)


def is_strict(each: Meter) -> bool:
    """Return whether the meter wants output caps that surely fit."""
    return bool(getattr(each, "strict", False)) and getattr(each, "mode", None) != "observe"


def strict_cap(meters: Sequence[Meter], rates: Sequence[Rates], tokens: int, asked: int | None) -> int | None:
    """Return the output cap that surely fits all of these strict meters, None when none of them limits it.

    What fits only without the attempts in flight is asked for at the least cap, so that the guard waits or refuses.
    """
    fits: list[int] = []
    for each in meters:
        affordable = getattr(each, "affordable_output")(  # noqa: B009
            quote_of(rates, tokens, 0).cost or ZERO, _dearest_output(rates)
        )
        if affordable is not None:
            fits.append(affordable)
    if not fits:
        return None
    wanted = _STRICT_OUTPUT if asked is None else asked
    return max(min(wanted, *fits), min(wanted, _LEAST_OUTPUT))


def check_bounded(settings: ModelSettings) -> None:
    """Raise ConfigurationError for a field of `extra` that lets an answer grow, or a prompt be one that is not here."""
    for name in settings.extra or ():
        if name in _UNBOUNDED:
            raise ConfigurationError(
                f"ModelSettings(extra={{{name!r}: ...}}) under a strict budget: nobody can say what such a call costs "
                "at most. Leave it out (max_tokens caps an answer), or budget without strict."
            )


def quote_of(rates: Sequence[Rates], tokens: int, output: int) -> Quote:
    """Return the bound of an attempt that any of these rules may price; without one its cost is unknown."""
    return Quote(tokens, output, max((bound(each, tokens, output) for each in rates), default=None))


def capped(call: Call[ChatRequest], output: int) -> Call[ChatRequest]:
    """Return the call with that output cap."""
    if call.request.settings.max_tokens == output:
        return call
    settings = replace(call.request.settings, max_tokens=output)
    return replace(call, request=replace(call.request, settings=settings))


def lower_cap(attempt: Attempt, left: Decimal) -> bool:
    """Lower the cap of an attempt that was admitted to what fits into `left` dollars; False when it stays as it is."""
    rates, quote = attempt.bounds, attempt.call.quote
    per_token = _dearest_output(rates)
    if quote is None or not per_token:
        return False
    tokens = quote.input_tokens
    fits = divide_money(max(ZERO, subtract_money(left, quote_of(rates, tokens, 0).cost or ZERO)), per_token)
    output = max(fits, min(quote.output_tokens, _LEAST_OUTPUT))
    if output >= quote.output_tokens:
        return False
    resize(attempt, quote_of(rates, tokens, output))
    attempt.call = capped(attempt.call, output)
    return True


def _dearest_output(rates: Sequence[Rates]) -> Decimal:
    outputs = [output for each in rates for output in (each.output, *(band.output for band in each.bands))]
    return multiply_money(max(outputs, default=ZERO), _PER_TOKEN)
