"""Reads a reply that was made to fit the envelope: one tool call, or the answer, while it streams."""

from __future__ import annotations

import json
import re
from typing import Literal, TypeAlias

import msgspec

__all__ = ["Reply", "ReplyReader"]

Mode: TypeAlias = Literal["open", "answer", "prose", "silent"]
_ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_TYPED_ANSWER = re.compile(r'^\s*\{\s*"answer"\s*:\s*')
_MAYBE_ANSWER = re.compile(r'\s*(\{\s*("(a(n(s(w(e(r("\s*(:\s*)?)?)?)?)?)?)?)?)?)?')
_CALL = re.compile(r'\s*\{\s*"tool"\s*:\s*"((?:[^"\\]|\\.)*)"\s*(?:,\s*(?:"arguments"\s*:\s*)?)?')
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}"
_SAFE = re.compile(rf'(?:[^"\\]+|\\u(?![dD][89abAB])[0-9a-fA-F]{{4}}|{_PAIR}|\\[^u])*')


class Reply(msgspec.Struct, frozen=True):
    """What a whole reply came to: `tool` "" for text; `arguments` is JSON text, broken when `complete` is False."""

    text: str = ""
    tool: str = ""
    arguments: str = ""
    complete: bool = True


class _Envelope(msgspec.Struct):
    tool: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    answer: msgspec.Raw = msgspec.Raw(b"")


class ReplyReader:
    """Takes the pieces of a reply and tells early what belongs to the text of the answer.

    A plain answer comes out as it arrives, also when the model ignored the form and just talks. A typed answer
    and a tool call come out whole, from `finish`.
    """

    def __init__(self, *, typed: bool = False) -> None:
        self._typed = typed
        self._mode: Mode = "open"
        self._pieces: list[str] = []
        self._told: list[str] = []
        self._unread = ""

    def feed(self, piece: str) -> str:
        """Return the text of the answer that became known with this piece, "" for none."""
        self._pieces.append(piece)
        if self._mode != "silent":
            self._unread += piece
        if self._mode == "open":
            self._recognise()
        if self._mode == "prose":
            new, self._unread = self._unread, ""
        elif self._mode == "answer":
            new = self._unescape()
        else:
            return ""
        self._told.append(new)
        return new

    def finish(self) -> tuple[Reply, str]:
        """Return the reply and the rest of its text, which no piece told before."""
        reply = self._decode()
        told = "".join(self._told)
        if not reply.text.startswith(told):
            return Reply(text=told), ""
        return reply, reply.text[len(told) :]

    def _recognise(self) -> None:
        text = self._unread
        if text and not text.isspace() and text.lstrip()[0] != "{":
            self._mode = "prose"
        elif not self._typed and (found := _ANSWER.match(text)):
            self._mode, self._unread = "answer", text[found.end() :]
        elif not _MAYBE_ANSWER.fullmatch(text):
            self._mode, self._unread = "silent", ""

    def _unescape(self) -> str:
        found = _SAFE.match(self._unread)
        if found is None or not found.end():
            return ""
        self._unread = self._unread[found.end() :]
        return _unquoted(found[0])

    def _decode(self) -> Reply:
        raw = "".join(self._pieces)
        if self._mode == "prose":
            return Reply(text=raw)
        try:
            found = msgspec.json.decode(raw, type=_Envelope)
        except msgspec.MsgspecError:
            return self._broken(raw)
        if found.tool:
            return Reply(tool=found.tool, arguments=_compact(found.arguments))
        text = bytes(found.answer).decode()
        if not text:
            return Reply(text=raw)
        return Reply(text=text if self._typed or not text.startswith('"') else _unquoted(text[1:-1]))

    def _broken(self, raw: str) -> Reply:
        if self._mode == "answer":
            return Reply(text="".join(self._told), complete=False)
        call = _CALL.match(raw)
        if call is None:
            return Reply(text=_TYPED_ANSWER.sub("", raw, count=1), complete=False)
        arguments = raw[call.end() :].strip()
        complete = _is_object(arguments)
        if not complete and not arguments.startswith("{"):
            arguments = "{"
        return Reply(tool=_unquoted(call[1]), arguments=arguments, complete=complete)


def _compact(raw: msgspec.Raw) -> str:
    return msgspec.json.format(bytes(raw), indent=-1).decode()


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.MsgspecError:
        return False


def _unquoted(escaped: str) -> str:
    try:
        return str(json.loads(f'"{escaped}"', strict=False))
    except ValueError:
        return escaped
