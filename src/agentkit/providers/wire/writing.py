"""What the writers of all protocols share: one model of one server, what it rejects, and what was written before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Raw

from agentkit.core.contracts import Adjustment, JsonObject, JsonValue, Message, OutputSpec, ToolSpec
from agentkit.errors import ConfigurationError
from agentkit.providers.profiles import Profile
from agentkit.providers.wire.clean import encode_json
from agentkit.providers.wire.memo import IdentityMemo, WireMemo
from agentkit.providers.wire.replay import Replay
from agentkit.providers.wire.schemas import OutputShape, ToolShape, output_shape, tool_shape

__all__ = ["BodyWriter"]


class BodyWriter:
    """The base of a writer; `kinds` are the opaque items its protocol carries.

    `changes` are filled by a write: each way in which the body says other than its request asks. Whoever has the body
    written empties the list before, and reads it after.
    """

    __slots__ = (
        "_memo",
        "_model",
        "_outputs",
        "_profile",
        "_tool_notes",
        "_tool_shapes",
        "_tools",
        "_written_tools",
        "changes",
        "replay",
    )

    def __init__(self, profile: Profile, endpoint: str, model: str, *kinds: str) -> None:
        self._profile = profile
        self._model = model
        self._memo: WireMemo[Message] = WireMemo()
        self._tools: tuple[ToolSpec, ...] = ()
        self._written_tools = Raw(b"[]")
        self._tool_notes: tuple[Adjustment, ...] = ()
        self._tool_shapes: IdentityMemo[ToolSpec, ToolShape] = IdentityMemo()
        self._outputs: IdentityMemo[OutputSpec, tuple[OutputShape, Raw | None]] = IdentityMemo()
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

    def _output(self, output: OutputSpec) -> tuple[OutputShape, Raw | None]:
        """Return how the answer's schema goes out, and as written, and report it; the same output is adapted once."""
        found = self._outputs.get(output)
        if found is None:
            shape = output_shape(output, self._profile)
            body = self._format(shape)
            found = self._outputs.put(output, (shape, None if body is None else Raw(encode_json(body))))
        if found[0].note is not None:
            self.changes.append(found[0].note)
        return found

    def _tool_list(self, tools: tuple[ToolSpec, ...]) -> Raw:
        """Return the tools as written, and report what was changed of them; the same tuple is written once."""
        if tools is not self._tools:
            self._written_tools = Raw(encode_json([self._tool(tool, self._shape(tool)) for tool in tools]))
            notes = [self._shape(tool).note for tool in tools]
            self._tool_notes = tuple(note for note in notes if note is not None)
            self._tools = tools
        self.changes += self._tool_notes
        return self._written_tools

    def _shape(self, tool: ToolSpec) -> ToolShape:
        return self._tool_shapes.get(tool) or self._tool_shapes.put(tool, tool_shape(tool, self._profile))

    def _tool(self, tool: ToolSpec, shape: ToolShape) -> JsonObject:
        raise NotImplementedError

    def _format(self, shape: OutputShape) -> JsonObject | None:
        raise NotImplementedError
