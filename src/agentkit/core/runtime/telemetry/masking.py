"""What sinks (spans, logs, ledger, journal, replay) may see of arguments and results. Tools and models see all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentkit.core.contracts import JsonValue

__all__ = ["MASK_FAILED", "ArgumentMasker", "Masker", "ResultMasker"]

ArgumentMasker = Callable[[str, Mapping[str, JsonValue]], JsonValue]
ResultMasker = Callable[[str, str], str | None]

MASK_FAILED = "[masked: the masker failed]"


class Masker:
    """Applies a host's maskers where data leaves the run.

    A masker that raises, or a result masker that returns None, yields a fixed marker instead of the raw value;
    `failures` counts the raises.
    """

    __slots__ = ("_arguments", "_result", "failures")

    def __init__(self, arguments: ArgumentMasker | None = None, result: ResultMasker | None = None) -> None:
        self._arguments = arguments
        self._result = result
        self.failures = 0

    def arguments(self, tool: str, arguments: Mapping[str, JsonValue]) -> JsonValue:
        """Return what sinks may see of a call's arguments; the masker gets a copy."""
        if self._arguments is None:
            return dict(arguments)
        try:
            return self._arguments(tool, dict(arguments))
        except Exception:
            self.failures += 1
            return MASK_FAILED

    def result(self, tool: str, text: str) -> str:
        """Return what sinks may see of a tool's result."""
        if self._result is None:
            return text
        try:
            masked = self._result(tool, text)
        except Exception:
            self.failures += 1
            return MASK_FAILED
        return MASK_FAILED if masked is None else masked
