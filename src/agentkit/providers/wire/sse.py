"""Cuts a server-sent event stream into its frames, whatever the chunks; works on bytes."""

from __future__ import annotations

__all__ = ["SseReader", "data_of"]

_BOM = b"\xef\xbb\xbf"


class SseReader:
    """Collects chunks and gives whole frames: the bytes between two blank lines, with LF line ends.

    Each byte is looked at a fixed number of times, so one large frame in many chunks stays linear.
    """

    __slots__ = ("_begun", "_carriage", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._carriage = False
        self._begun = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that this chunk completes; some may be empty."""
        if self._carriage or b"\r" in data:
            data = self._with_line_feeds(data)
        if not data:
            return []
        pieces = self._pieces
        if pieces:
            ends = b"\n\n" in data or (data[0] == 10 and pieces[-1][-1] == 10)
            pieces.append(data)
            if not ends:
                return []
            data = b"".join(pieces)
            pieces.clear()
        frames = data.split(b"\n\n")
        rest = frames.pop()
        if rest:
            pieces.append(rest)
        if frames and not self._begun:
            self._begun = True
            frames[0] = frames[0].removeprefix(_BOM)
        return frames

    def rest(self) -> bytes:
        """Return what is left at the end of the stream: a frame without its blank line, or a torn one."""
        left = b"".join(self._pieces)
        self._pieces.clear()
        return left if self._begun else left.removeprefix(_BOM)

    def _with_line_feeds(self, data: bytes) -> bytes:
        if self._carriage:
            data = b"\r" + data
        self._carriage = data.endswith(b"\r")
        if self._carriage:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def data_of(frame: bytes) -> tuple[bytes, bytes]:
    """Return the event name and the data of any frame; comments and unknown fields count for nothing.

    JSON without a field's name, as some servers send an error in a stream's place, is its own data.
    """
    name = b""
    data: list[bytes] = []
    for line in frame.split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line.startswith(b"event:"):
            name = line[6:].strip()
    if not data and frame.lstrip()[:1] == b"{":
        return name, frame.strip()
    return name, b"\n".join(data)
