"""What the writers of all protocols share: one model of one server, what it rejects, and what was written before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Raw

from agentkit.core.contracts import Adjustment, JsonObject, JsonValue, Message, ToolSpec
from agentkit.errors import ConfigurationError
from agentkit.providers.profiles import Profile
from agentkit.providers.wire.clean import encode_json
from agentkit.providers.wire.memo import WireMemo
from agentkit.providers.wire.replay import Replay

__all__ = ["BodyWriter"]


class BodyWriter:
    """The base of a writer; `kinds` are the opaque items its protocol carries.

    `changes` are filled by a write: each way in which the body says other than its request asks. Whoever has the body
    written empties the list before, and reads it after.
    """

    __slots__ = ("_memo", "_model", "_profile", "_tools", "_written_tools", "changes", "replay")

    def __init__(self, profile: Profile, endpoint: str, model: str, *kinds: str) -> None:
        self._profile = profile
        self._model = model
        self._memo: WireMemo[Message] = WireMemo()
        self._tools: tuple[ToolSpec, ...] = ()
        self._written_tools = Raw(b"[]")
        self.replay = Replay(endpoint, model, *kinds)
        self.changes: list[Adjustment] = []

    def _put(self, body: dict[str, object], given: dict[str, object], unknown: Iterable[str] = ()) -> None:
        """Put what is given into the body, but for None and what the server rejects.

        `unknown` are settings that were asked for and that the protocol has no field for.
        """
        rejects = self._profile.rejects
        left_out = list(unknown)
        for name, value in given.items():
            if value is None:
                continue
            if name in rejects:
                left_out.append(name)
            else:
                body[name] = value
        for name in left_out:
            self.changes.append(Adjustment("setting", name, f"{self._profile.name} does not take it; left out"))

    def _merge(self, body: dict[str, object], extra: Mapping[str, JsonValue]) -> None:
        """Put the extra fields into the body, which has all others already.

        Tools are added to those of the request; an object joins the object of its name, unless it says its own type;
        everything else takes the place of what was there.
        """
        for name, value in extra.items():
            ours = body.get(name)
            if name == "tools" and ours is not None and isinstance(value, list):
                body[name] = self._more_tools(value)
            elif isinstance(ours, dict) and isinstance(value, dict) and "type" not in value:
                body[name] = {**ours, **value}
            else:
                body[name] = value

    def _more_tools(self, tools: list[JsonValue]) -> Raw:
        own = {tool.name for tool in self._tools}
        for tool in tools:
            if isinstance(tool, dict) and tool.get("name") in own:
                raise ConfigurationError(
                    f"settings.extra['tools'] and the request both have a tool {tool['name']!r}; rename one of them."
                )
        written = bytes(self._written_tools)
        return Raw(written[:-1] + b"," + encode_json(tools)[1:]) if tools else self._written_tools

    def _tool_list(self, tools: tuple[ToolSpec, ...]) -> Raw:
        """Return the tools as written; the same tuple is written once."""
        if tools is not self._tools:
            self._written_tools = Raw(encode_json([self._tool(tool) for tool in tools]))
            self._tools = tools
        return self._written_tools

    def _tool(self, tool: ToolSpec) -> JsonObject:
        raise NotImplementedError
