"""The schemas of answers and tools as one server gets them, and what is reported of that."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from agentkit.core.contracts import Adjustment, JsonObject, OutputSpec, SystemMessage, ToolSpec
from agentkit.errors import ConfigurationError
from agentkit.providers.profiles import Profile
from agentkit.providers.wire.clean import encode_json
from agentkit.schema import DIALECTS, Adapted, Dialect, adapt_schema

__all__ = ["OutputShape", "ToolShape", "output_shape", "tool_shape"]

_MOST_SHOWN = 8


class OutputShape(Struct, frozen=True):
    """How an answer's schema goes out: as `schema` with the flag `strict`, or as an `instruction` in the prompt.

    `strict` None sends no flag. `note` reports what is other than asked for.
    """

    name: str
    schema: JsonObject | None
    strict: bool | None = None
    instruction: SystemMessage | None = None
    note: Adjustment | None = None


class ToolShape(Struct, frozen=True):
    """How a tool's parameters go out; `strict` None sends no flag."""

    parameters: JsonObject
    strict: bool | None = None
    note: Adjustment | None = None


def output_shape(spec: OutputSpec, profile: Profile) -> OutputShape:
    """Return how this server gets an answer's schema; answers are validated against the one given in any case.

    Raises ConfigurationError when `strict=True` was asked for and cannot be had.
    """
    what, asked, flagged = f"output {spec.name!r}", spec.strict, profile.schemas == "strict"
    if profile.schemas in ("prompt", "text"):
        if asked:
            raise _impossible(what, (f"{profile.name} enforces no schema",))
        return _instructed(spec, what, f"{profile.name} enforces no schema")
    dialect = _dialect(profile)
    if dialect is None or (asked is False and not dialect.closed):
        return OutputShape(spec.name, spec.schema, asked if flagged else None)
    if asked is False:
        unforced = OutputShape(spec.name, spec.schema, False)
        return unforced if flagged else _instructed(spec, what, f"{profile.name} knows strict schemas only")
    adapted = adapt_schema(spec.schema, dialect)
    if not adapted.obstacles:
        return OutputShape(spec.name, adapted.schema, True if flagged else None, None, _changed(what, adapted))
    if asked:
        raise _impossible(what, adapted.obstacles)
    if not flagged and dialect.closed:
        return _instructed(spec, what, f"{profile.name} cannot enforce it ({_listed(adapted.obstacles)})")
    return OutputShape(spec.name, spec.schema, False if flagged else None, None, _not_strict(what, adapted))


def tool_shape(spec: ToolSpec, profile: Profile) -> ToolShape:
    """Return how this server gets a tool's parameters; arguments are validated against those given in any case.

    Raises ConfigurationError when `strict=True` was asked for and cannot be had.
    """
    what, asked, mode = f"tool {spec.name!r}", spec.strict, profile.strict_tools
    dialect = _dialect(profile)
    if mode == "never" and asked:
        raise _impossible(what, (f"{profile.name} has no strict tools",))
    if dialect is None or dialect.closed is (mode == "never") or (asked is None and mode == "asked"):
        return ToolShape(spec.parameters, asked if mode != "never" else None)
    if asked is False and dialect.closed:
        return ToolShape(spec.parameters, False)
    adapted = adapt_schema(spec.parameters, dialect)
    strict = True if mode != "never" else None
    if not adapted.obstacles:
        return ToolShape(adapted.schema, strict, _changed(what, adapted))
    if asked:
        raise _impossible(what, adapted.obstacles)
    return ToolShape(spec.parameters, None if strict is None else False, _not_strict(what, adapted))


def _dialect(profile: Profile) -> Dialect | None:
    return DIALECTS.get(profile.schema_subset or ("openai" if profile.schemas == "strict" else ""))


def _instructed(spec: OutputSpec, what: str, why: str) -> OutputShape:
    schema = encode_json(spec.schema).decode()
    text = f"Answer with one JSON object, and nothing else, that fits this JSON Schema ({spec.name}):\n{schema}"
    note = Adjustment("schema", what, f"{why}; it went into the prompt")
    return OutputShape(spec.name, None, None, SystemMessage(text), note)


def _impossible(what: str, obstacles: Sequence[str]) -> ConfigurationError:
    return ConfigurationError(
        f"The {what} was asked for with strict=True and cannot be strict: {_listed(obstacles)}. Change the type, or "
        "leave strict out: the answer is validated here in any case."
    )


def _changed(what: str, adapted: Adapted) -> Adjustment | None:
    return (
        Adjustment("schema", what, f"rewritten for the server: {_listed(adapted.changes)}") if adapted.changes else None
    )


def _not_strict(what: str, adapted: Adapted) -> Adjustment:
    return Adjustment("schema", what, f"sent without being enforced: {_listed(adapted.obstacles)}")


def _listed(parts: Sequence[str]) -> str:
    more = f"; and {len(parts) - _MOST_SHOWN} more" if len(parts) > _MOST_SHOWN else ""
    return "; ".join(parts[:_MOST_SHOWN]) + more
