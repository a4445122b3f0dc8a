"""What a model can do, as far as it is known: yes, no, or unknown."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["UNKNOWN_CAPABILITIES", "Capabilities"]


class Capabilities(Struct, frozen=True, kw_only=True):
    """What one model can do; None is unknown. Windows and limits are in tokens.

    `required_tools` says whether it can be held to a tool call, `vision` whether it reads images, `files` whether it
    reads documents such as PDF; empty `reasoning_efforts` say that it takes none.
    """

    context_window: int | None = None
    max_output_tokens: int | None = None
    tools: bool | None = None
    parallel_tools: bool | None = None
    required_tools: bool | None = None
    vision: bool | None = None
    files: bool | None = None
    structured_output: bool | None = None
    reasoning_efforts: tuple[str, ...] | None = None


UNKNOWN_CAPABILITIES = Capabilities()
