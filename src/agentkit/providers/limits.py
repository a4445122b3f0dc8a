"""What is known of a model's sizes, held against one request as it goes out."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.catalog import least_tokens
from agentkit.core.contracts import Adjustment, Capabilities, Message
from agentkit.errors import ContextOverflow

__all__ = ["check_window", "output_cap"]

_BYTES_PER_TOKEN = 4  # a smaller body is not weighed: whether it fits is the server's to tell
_ROUNDED = 20  # lists round windows: a twentieth above what they say may still fit


def output_cap(asked: int | None, known: Capabilities, default: int) -> tuple[int | None, Adjustment | None]:
    """Return the cap on the output to send, and what is reported of it.

    A cap above what the model can write is lowered to that, which changes no answer; without one it is the model's
    limit, else `default`, where the server needs one (`default` 0 sends nothing).
    """
    most = known.max_output_tokens
    if asked is None:
        return (most or default) if default else None, None
    if most is None or asked <= most:
        return asked, None
    why = f"{asked} is above the {most} tokens that the model writes at most; sent as {most}"
    return most, Adjustment("setting", "max_tokens", why)


def check_window(messages: Sequence[Message], size: int, known: Capabilities, provider: str, model: str) -> None:
    """Raise ContextOverflow for a conversation that surely does not fit; `size` is the body's in bytes.

    Words are counted, one token each at the least, so what may fit goes to the server.
    """
    window = known.context_window
    if window is None or size <= _BYTES_PER_TOKEN * window:
        return
    least = least_tokens(messages)
    if least > window + window // _ROUNDED:
        raise ContextOverflow(
            f"The conversation has at least {least:,} tokens, and the window of {provider}:{model} holds {window:,}. "
            "Send fewer or shorter messages, or use a model with a larger window.",
            provider=provider,
            model=model,
            accepted=False,
        )
