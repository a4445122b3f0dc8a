"""The last look at a conversation before it is written: sound or repaired, and ids that the server takes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from msgspec import Struct

from agentkit.core.contracts import Adjustment, AssistantMessage, Message
from agentkit.core.contracts.history import check_history, repair_history
from agentkit.providers.profiles import CallIdStyle

__all__ = ["Guarded", "guard_history", "wire_id"]

_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NINE = re.compile(r"[A-Za-z0-9]{9}")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Guarded(Struct, frozen=True):
    """A conversation that can be sent, the ids of all calls in it, and what was repaired."""

    messages: Sequence[Message]
    ids: set[str]
    repairs: tuple[Adjustment, ...] = ()


def guard_history(messages: Sequence[Message]) -> Guarded:
    """Return the messages, themselves when they are sound, repaired otherwise; see `repair_history`.

    Raises ConfigurationError for an empty conversation and for a result that answers no call.
    """
    ids = check_history(messages) if messages else None
    if ids is not None:
        return Guarded(messages, ids)
    repaired, repairs = repair_history(messages)
    turns = (message for message in repaired if isinstance(message, AssistantMessage))
    return Guarded(repaired, {call.id for turn in turns for call in turn.tool_calls}, repairs)


def wire_id(given: str, style: CallIdStyle) -> str:
    """Return the call id in the form a server takes: itself where it fits, else a digest of it."""
    if style == "any" or (_NINE if style == "nine" else _WORD).fullmatch(given):
        return given
    number = int.from_bytes(hashlib.blake2b(given.encode("utf-8", "replace"), digest_size=8).digest(), "big")
    letters = ""
    for _ in range(9):
        number, rest = divmod(number, 36)
        letters += _DIGITS[rest]
    return letters
