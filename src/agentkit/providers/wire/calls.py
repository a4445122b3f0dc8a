"""Puts the pieces of tool calls together, whatever the server does with index, id and name."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

import msgspec

from agentkit.core.contracts import ToolCall, ToolCallDelta, ToolCallReady, ToolSpec, clean_text
from agentkit.providers.names import wire_name
from agentkit.providers.wire.arguments import same_arguments, settled_arguments
from agentkit.providers.wire.clean import TextJoiner, is_json
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
    """One call while its pieces arrive; `repeats` says that the server names it again with each piece."""

    __slots__ = ("depth", "given", "id", "index", "joiner", "name", "pieces", "position", "read", "repeats", "told")

    def __init__(self, index: int, position: int) -> None:
        self.index = index
        self.position = position
        self.given = ""
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.joiner: TextJoiner | None = None
        self.depth = _Depth()
        self.read = 0
        self.told = 0
        self.repeats = False

    def closed(self) -> bool:
        pieces = self.pieces
        for number in range(self.read, len(pieces)):
            self.depth.read(pieces[number])
        self.read = len(pieces)
        return self.depth.closed

    def append(self, arguments: str) -> None:
        if self.joiner is not None or not arguments.isascii():
            self.joiner = self.joiner or TextJoiner()
            arguments = self.joiner.add(arguments)
        if arguments:
            self.pieces.append(arguments)

    def restart(self) -> None:
        self.pieces.clear()
        self.depth = _Depth()
        self.read = self.told = 0

    def text(self) -> str:
        if self.joiner is not None and (rest := self.joiner.rest()):
            self.pieces.append(rest)
        return "".join(self.pieces)


class CallAssembly:
    """The tool calls of one answer.

    A piece belongs to the call of its (index, id). A new id, or a name or a fresh object after a closed one, opens
    another call; a name in pieces is joined, told apart by `tools`, those that the model may call. A call is told of
    from the moment its name is sure. Ids come out unique in the conversation: the provider's where it is new, else one
    of ours made of `turn` and the call's position, the same each time. `compact` writes whole arguments without white
    space, for a protocol that sends them as text in a stream and as an object otherwise. Raises ProviderError for a
    call without a name.
    """

    __slots__ = ("_calls", "_compact", "_current", "_givens", "_ids", "_places", "_taken", "_tools", "_turn")

    def __init__(
        self, taken: Container[str] = (), turn: int = 0, *, tools: Sequence[ToolSpec] = (), compact: bool = False
    ) -> None:
        self._calls: list[_Open] = []
        self._current: dict[int, _Open] = {}
        self._givens: dict[str, _Open] = {}
        self._places: dict[tuple[int, str], _Open] = {}
        self._ids: set[str] = set()
        self._taken = taken
        self._turn = turn
        self._tools = tools
        self._compact = compact

    def __len__(self) -> int:
        return len(self._calls)

    def add(
        self, index: int | None, given: str | None, name: str | None, arguments: str | None
    ) -> ToolCallDelta | None:
        """Take one piece; returns what is new to tell, None while the call's name is not sure."""
        if not (given or name or arguments):
            return None
        call = self._call_of(index, given or "", name or "", arguments or "")
        if call is None:
            return None
        if given and not call.given:
            call.given = given
            self._givens[given] = self._places[call.index, given] = call
        if name:
            self._name(call, clean_text(name))
        if arguments:
            call.append(arguments)
        if not call.name or not (call.pieces or self._is_sure(call.name)):
            return None
        return self._tell(call)

    def open(self, given: str, name: str) -> tuple[int, ToolCallDelta | None]:
        """Begin a call whose pieces say themselves which call they belong to; returns its position and what to tell."""
        call = self._open(len(self._calls))
        call.given, call.name = given, clean_text(name)
        return call.position, self._tell(call)

    def extend(self, position: int, arguments: str) -> ToolCallDelta | None:
        """Take the next piece of the arguments of the call at this position."""
        call = self._calls[position]
        call.append(arguments)
        return self._tell(call)

    def settle(self, position: int, given: str, name: str, arguments: str) -> ToolCallDelta | None:
        """Take the call as a whole in place of its pieces, nothing for what is empty; returns what was not told yet."""
        call = self._calls[position]
        call.given, call.name = call.given or given, call.name or clean_text(name)
        so_far = "".join(call.pieces)
        if arguments and arguments != so_far:
            rest = arguments[len(so_far) :] if arguments.startswith(so_far) else ""
            call.pieces = [so_far, rest] if so_far and rest else [arguments]
            call.told = 1 if call.told else 0
            call.joiner = None
        return self._tell(call)

    def finish(self, *, cut: bool) -> tuple[tuple[ToolCall, ...], list[ToolCallDelta | ToolCallReady]]:
        """Return every call, and what is left to tell: calls not told of yet, and those that may run.

        `cut` says that the answer hit its token limit. A call whose arguments are not JSON keeps its broken text and
        is not ready.
        """
        calls: list[ToolCall] = []
        told: list[ToolCallDelta | ToolCallReady] = []
        for open_call in self._calls:
            if not open_call.name:
                raise malformed_turn("a tool call has no name")
            text = open_call.text()
            if (late := self._tell(open_call)) is not None:
                told.append(late)
            arguments = settled_arguments(text, open_call.pieces)
            if not arguments:
                arguments = _CUT if cut and open_call is self._calls[-1] else "{}"
            complete = is_json(arguments)
            if complete and self._compact:
                arguments = msgspec.json.format(arguments, indent=-1)
            call = ToolCall(open_call.id, open_call.name, arguments)
            calls.append(call)
            if complete:
                told.append(ToolCallReady(open_call.position, call))
        return tuple(calls), told

    def _tell(self, call: _Open) -> ToolCallDelta | None:
        """Return what the call holds and was not told; the first time also when that is only its name."""
        if not call.name:
            return None
        if not call.id:
            call.id = self._unique(call)
        elif len(call.pieces) == call.told:
            return None
        new = call.pieces[call.told :]
        call.told = len(call.pieces)
        return ToolCallDelta(call.position, call.id, call.name, new[0] if len(new) == 1 else "".join(new))

    def _call_of(self, index: int | None, given: str, name: str, arguments: str) -> _Open | None:
        """Return the call this piece belongs to, None for a piece that repeats what is known."""
        if index is None:
            index = self._index_of(given)
        call = self._current.get(index)
        if call is None:
            call = self._continued(given, name, arguments)
            return self._open(index) if call is None else call
        if given and call.given and given != call.given:
            return self._by_id(call, given, name, arguments)
        if arguments.lstrip().startswith("{") and call.pieces and call.closed():
            return self._after_closed(call, given, name, arguments)
        return self._by_name(call, given, name)

    def _by_id(self, call: _Open, given: str, name: str, arguments: str) -> _Open:
        earlier = self._places.get((call.index, given))
        if earlier is not None:
            self._current[call.index] = earlier
            return earlier
        fresh = not arguments or arguments.lstrip().startswith("{")
        goes_on = name == call.name and call.pieces and not fresh  # a server that makes up an id for each piece
        if call.closed() or (name and not goes_on):
            return self._open(call.index)
        return call

    def _after_closed(self, call: _Open, given: str, name: str, arguments: str) -> _Open | None:
        """Return the call of a whole object after a whole one: the same said again, or another call."""
        said = "".join(call.pieces)
        again = given == call.given if given else not name or len(call.pieces) > 1
        if again and (not name or name == call.name) and same_arguments(arguments, said):
            return None
        if said.strip() == "{}" and not name and given in ("", call.given):  # a placeholder before the arguments
            call.restart()
            return call
        return self._open(call.index)

    def _by_name(self, call: _Open, given: str, name: str) -> _Open | None:
        if not (name and call.name):
            return call
        if name != call.name:
            other = not given or call.closed() if call.pieces else self._is_another(call, name)
            return self._open(call.index) if other else call
        if given or not call.closed():
            call.repeats = bool(call.pieces)
            return call
        return None if call.repeats else self._open(call.index)

    def _is_another(self, call: _Open, name: str) -> bool:
        """Return whether a second name before any argument means another call, not the rest of the first name."""
        if not self._tools:
            return not call.given
        known = {wire_name(tool.name) for tool in self._tools}
        if call.name not in known:
            return False
        return name in known or (call.name + name not in known and not name.startswith(call.name))

    def _name(self, call: _Open, name: str) -> None:
        if call.pieces or not call.name:
            call.name = call.name or name
        elif name.startswith(call.name):  # the same again, or the whole of what was begun
            call.name = name if not call.id else call.name
        elif not call.id:
            call.name += name

    def _is_sure(self, name: str) -> bool:
        """Return whether no other piece of the name can follow."""
        known = False
        for tool in self._tools:
            if (other := wire_name(tool.name)) == name:
                known = True
            elif other.startswith(name):
                return False
        return known

    def _continued(self, given: str, name: str, arguments: str) -> _Open | None:
        """Return the open call that a piece under a new index goes on with, for a server that counts the pieces."""
        if name or not self._calls or arguments.lstrip().startswith("{"):
            return None
        last = self._givens.get(given) if given else self._calls[-1]
        return None if last is None or not arguments or last.closed() else last

    def _index_of(self, given: str) -> int:
        if given:
            known = self._givens.get(given)
            return len(self._calls) if known is None else known.index
        return self._calls[-1].index if self._calls else 0

    def _open(self, index: int) -> _Open:
        call = self._current[index] = _Open(index, len(self._calls))
        self._calls.append(call)
        return call

    def _unique(self, call: _Open) -> str:
        wish = clean_text(call.given)
        number = call.position
        while not wish or wish in self._ids or wish in self._taken:
            wish = f"c{self._turn % 10_000:04d}{number:04d}"
            number += 1_000
        self._ids.add(wish)
        return wish
