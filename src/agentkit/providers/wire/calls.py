"""Puts the pieces of tool calls together, whatever the server does with index, id and name."""

from __future__ import annotations

import re
from collections.abc import Container

import msgspec

from agentkit.core.contracts import ToolCall, ToolCallDelta, ToolCallReady
from agentkit.providers.wire.clean import is_json, mend_escapes
from agentkit.providers.wire.failure import malformed_turn

__all__ = ["CallAssembly"]

_MARKS = re.compile(r'["\\{}\[\]]')
_CUT = "{"  # what a call cut before its first argument holds: text that no tool can take for no arguments


class _Depth:
    """Knows whether the text so far is a closed object; looks at each character once."""

    __slots__ = ("_depth", "_escaped", "_seen", "_string")

    def __init__(self) -> None:
        self._depth = 0
        self._string = False
        self._escaped = False
        self._seen = False

    def read(self, text: str) -> None:
        position = 1 if self._escaped else 0
        self._escaped = False
        while (mark := _MARKS.search(text, position)) is not None:
            position = mark.end()
            what = mark.group()
            if what == '"':
                self._string = not self._string
            elif self._string:
                if what == "\\":
                    self._escaped = position == len(text)
                    position += 1
            elif what in "{[":
                self._depth += 1
                self._seen = True
            elif what in "}]":
                self._depth -= 1

    @property
    def closed(self) -> bool:
        return self._seen and self._depth <= 0 and not self._string


class _Open:
    """One call while its pieces arrive."""

    __slots__ = ("depth", "given", "id", "index", "name", "pieces", "position", "read", "told")

    def __init__(self, index: int, position: int) -> None:
        self.index = index
        self.position = position
        self.given = ""
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.depth = _Depth()
        self.read = 0
        self.told = 0

    def closed(self) -> bool:
        pieces = self.pieces
        for number in range(self.read, len(pieces)):
            self.depth.read(pieces[number])
        self.read = len(pieces)
        return self.depth.closed


class CallAssembly:
    """The tool calls of one answer.

    A piece belongs to the call of its (index, id). A new id, or a name or a fresh object after a closed one, opens
    another call. Ids come out unique in the conversation: the provider's where it is new, else one of ours made of
    `turn` and the call's position, the same each time. `compact` writes whole arguments without white space, for a
    protocol that sends them as text in a stream and as an object otherwise. Raises ProviderError
    for a call without a name.
    """

    __slots__ = ("_calls", "_compact", "_current", "_ids", "_taken", "_turn")

    def __init__(self, taken: Container[str] = (), turn: int = 0, *, compact: bool = False) -> None:
        self._calls: list[_Open] = []
        self._current: dict[int, _Open] = {}
        self._ids: set[str] = set()
        self._taken = taken
        self._turn = turn
        self._compact = compact

    def __len__(self) -> int:
        return len(self._calls)

    def add(
        self, index: int | None, given: str | None, name: str | None, arguments: str | None
    ) -> ToolCallDelta | None:
        """Take one piece; returns what is new to tell, None while the call has no name yet."""
        call = self._call_of(index, given or "", name or "", arguments or "")
        if call is None:
            return None
        if given and not call.given:
            call.given = given
        if name and not call.name:
            call.name = name
        if arguments:
            call.pieces.append(arguments)
        return self._told(call)

    def open(self, given: str, name: str) -> tuple[int, ToolCallDelta | None]:
        """Begin a call whose pieces say themselves which call they belong to; returns its position and what to tell."""
        position = len(self._calls)
        return position, self.add(position, given, name, None)

    def extend(self, position: int, arguments: str) -> ToolCallDelta | None:
        """Take the next piece of the arguments of the call at this position."""
        call = self._calls[position]
        call.pieces.append(arguments)
        return self._told(call)

    def settle(self, position: int, given: str, name: str, arguments: str) -> ToolCallDelta | None:
        """Take the call as a whole in place of its pieces, nothing for what is empty; returns what was not told yet."""
        call = self._calls[position]
        call.given, call.name = call.given or given, call.name or name
        so_far = "".join(call.pieces)
        if arguments and arguments != so_far:
            rest = arguments[len(so_far) :] if arguments.startswith(so_far) else ""
            call.pieces = [so_far, rest] if so_far and rest else [arguments]
            call.told = 1 if call.told else 0
        return self._told(call)

    def finish(self, *, cut: bool) -> tuple[tuple[ToolCall, ...], list[ToolCallReady]]:
        """Return every call, and those that may run; `cut` says that the answer hit its token limit.

        A call whose arguments are not JSON keeps its broken text and is not ready.
        """
        calls: list[ToolCall] = []
        ready: list[ToolCallReady] = []
        for open_call in self._calls:
            last = open_call is self._calls[-1]
            arguments = mend_escapes("".join(open_call.pieces)).strip()
            if not open_call.name:
                raise malformed_turn("a tool call has no name")
            if arguments in ("", "null"):
                arguments = _CUT if cut and last else "{}"
            call = ToolCall(open_call.id, open_call.name, arguments)
            calls.append(call)
            if is_json(arguments):
                if self._compact:
                    call = ToolCall(call.id, call.name, msgspec.json.format(arguments, indent=-1))
                    calls[-1] = call
                ready.append(ToolCallReady(open_call.position, call))
        return tuple(calls), ready

    def _told(self, call: _Open) -> ToolCallDelta | None:
        """Return what the call holds and was not told; the first time also when that is only its name."""
        if not call.name:
            return None
        first = not call.id
        if first:
            call.id = self._unique(call)
        new = call.pieces[call.told :]
        if not new and not first:
            return None
        call.told = len(call.pieces)
        return ToolCallDelta(call.position, call.id, call.name, new[0] if len(new) == 1 else "".join(new))

    def _call_of(self, index: int | None, given: str, name: str, arguments: str) -> _Open | None:
        """Return the call this piece belongs to, None for a piece that repeats what is known."""
        if index is None:
            index = self._index_of(given, name)
        call = self._current.get(index)
        if call is None:
            return self._open(index)
        if given and call.given and given != call.given:
            earlier = next((one for one in self._calls if one.index == index and one.given == given), None)
            if earlier is None and (name or call.closed()):
                return self._open(index)
            call = earlier or call
        fresh = arguments.lstrip().startswith("{") and bool(call.pieces)
        if fresh and call.closed():
            if given and given == call.given and arguments == "".join(call.pieces):
                return None
            return self._open(index)
        if name and call.name and not given and (call.closed() or (name != call.name and not call.pieces)):
            return self._open(index)
        self._current[index] = call
        return call

    def _index_of(self, given: str, name: str) -> int:
        if given:
            known = next((one.index for one in self._calls if one.given == given), None)
            return len(self._calls) if known is None else known
        if not self._calls:
            return 0
        last = self._calls[-1]
        return len(self._calls) if name and last.name else last.index

    def _open(self, index: int) -> _Open:
        call = self._current[index] = _Open(index, len(self._calls))
        self._calls.append(call)
        return call

    def _unique(self, call: _Open) -> str:
        wish = call.given
        number = call.position
        while not wish or wish in self._ids or wish in self._taken:
            wish = f"c{self._turn % 10_000:04d}{number % 10_000:04d}"
            number += 1_000
        self._ids.add(wish)
        return wish
