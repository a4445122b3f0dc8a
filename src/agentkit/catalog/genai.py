"""From the genai-prices package to our own form: exact names, dates and tiers; patterns are left out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Protocol, cast

__all__ = ["convert_genai_prices", "installed_genai_prices"]

_PACKAGE = "genai-prices"
_PROVIDERS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "gemini",
    "groq": "groq",
    "mistral": "mistral",
    "deepseek": "deepseek",
    "x-ai": "xai",
    "together": "together",
    "fireworks": "fireworks",
    "openrouter": "openrouter",
}
_FIELDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
}
_UNITS = {
    "input_audio_tokens": ("input_audio_mtok", 1_000_000),
    "cache_audio_read_tokens": ("cache_audio_read_mtok", 1_000_000),
    "output_audio_tokens": ("output_audio_mtok", 1_000_000),
    "input_image_tokens": ("input_image_mtok", 1_000_000),
    "cache_image_read_tokens": ("cache_image_read_mtok", 1_000_000),
    "output_image_tokens": ("output_image_mtok", 1_000_000),
    "input_video_tokens": ("input_video_mtok", 1_000_000),
    "output_video_tokens": ("output_video_mtok", 1_000_000),
    "output_reasoning_tokens": ("output_reasoning_mtok", 1_000_000),
    "web_searches": ("web_searches_kcount", 1_000),
    "storage_searches": ("storage_searches_kcount", 1_000),
    "social_searches": ("social_searches_kcount", 1_000),
    "code_executions": ("code_executions_kcount", 1_000),
}

_FACTS = ("speed",)

Row = dict[str, object]


class _Clause(Protocol):
    equals: str
    starts_with: str
    or_: list[_Clause]


class _Entry(Protocol):
    constraint: object
    prices: object


class _Variant(_Entry, Protocol):
    when: Mapping[str, str]


class _Model(Protocol):
    id: str
    match: _Clause
    prices: object
    price_variants: list[_Variant] | None
    context_window: int | None


class _Provider(Protocol):
    id: str
    models: list[_Model]


def installed_genai_prices() -> tuple[int, ...] | None:
    """Return the version of the installed genai-prices, None when it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version(_PACKAGE)
    except PackageNotFoundError:
        return None
    return version_of(found)


def version_of(source: str) -> tuple[int, ...]:
    """Return the numbers of a version, or of the source that a snapshot names."""
    return tuple(int(part) for part in source.rpartition(" ")[2].split(".") if part.isdigit())


def convert_genai_prices() -> Row:
    """Return the prices of the installed genai-prices as a snapshot's plain data."""
    from importlib.metadata import version

    from genai_prices import data

    models: dict[str, dict[str, Row]] = {}
    for provider in cast("list[_Provider]", data.providers):
        ours = _PROVIDERS.get(provider.id)
        if ours is not None:
            models[ours] = dict(sorted(_table(provider).items()))
    taken = datetime.now(UTC).date().isoformat()
    return {"taken": taken, "source": f"{_PACKAGE} {version(_PACKAGE)}", "models": models}


def _table(provider: _Provider) -> dict[str, Row]:
    table: dict[str, Row] = {}
    for model in provider.models:
        found = _rules(model)
        if not found:
            continue
        entry: Row = {"rules": found, **({"context": model.context_window} if model.context_window else {})}
        main = ""
        for name in dict.fromkeys([model.id, *_names(model.match)]):
            if name and not name.endswith("-") and name not in table:
                table[name] = {"same": main} if main else entry
                main = main or name
    return table


def _names(match: _Clause) -> list[str]:
    """Return the exact names a clause mentions; patterns are left out."""
    kind = type(match).__name__
    if kind == "ClauseEquals":
        return [match.equals]
    if kind == "ClauseStartsWith":
        return [match.starts_with.rstrip("@")]
    return [name for clause in match.or_ for name in _names(clause)] if kind == "ClauseOr" else []


def _rules(model: _Model) -> list[Row]:
    found: list[Row] = []
    standard: Row | None = None
    listed = cast("list[_Entry]", model.prices) if isinstance(model.prices, list) else [None]
    for entry in listed:
        row = _rates(model.prices if entry is None else entry.prices)
        if row is not None:
            limits = {} if entry is None else _when(entry.constraint)
            standard = standard if "hours" in limits else row
            found.append({**limits, **row})
    for variant in model.price_variants or []:
        tier = variant.when.get("service_tier") or ("batch" if variant.when.get("processing") == "batch" else None)
        facts = {name: variant.when[name] for name in _FACTS if name in variant.when}
        row = _rates(variant.prices, standard) if tier not in (None, "default") or facts else None
        if row is not None:
            named: Row = {**({"tier": tier} if tier else {}), **({"facts": facts} if facts else {})}
            found.append({**named, **_when(variant.constraint), **row})
    return found


def _rates(prices: object, inherited: Row | None = None) -> Row | None:
    """Return one rule's rates; None for models that are not priced by input and output tokens."""
    row: Row = {}
    bands: dict[int, Row] = {}
    for ours, theirs in _FIELDS.items():
        value = getattr(prices, theirs, None)
        if value is None:
            if inherited and ours in inherited:
                row[ours] = inherited[ours]
        elif isinstance(value, Decimal):
            row[ours] = _text(value)
        else:
            row[ours] = _text(value.base)
            for tier in value.tiers:
                bands.setdefault(tier.start, {})[ours] = _text(tier.price)
    if "input" not in row or "output" not in row:
        return None
    below = {field: row[field] for field in _FIELDS if field in row}
    above: list[Row] = []
    for start in sorted(bands):
        below = {**below, **bands[start]}
        above.append({**below, "above": start})
    units: object = {
        unit: [_text(value), per]
        for unit, (theirs, per) in _UNITS.items()
        if isinstance(value := getattr(prices, theirs, None), Decimal)
    }
    if inherited and not units:
        units = inherited.get("units")
    return {**row, **({"bands": above} if above else {}), **({"units": units} if units else {})}


def _when(constraint: object) -> Row:
    """Return the day from which, or the hours (UTC) in which, a price applies."""
    if constraint is None:
        return {}
    day = getattr(constraint, "start_date", None)
    if isinstance(day, date):
        return {"from": day.isoformat()}
    hours = [getattr(constraint, name) for name in ("start_time", "end_time")]
    if any(hour.utcoffset() not in (None, timedelta(0)) for hour in hours):
        raise ValueError(f"{constraint!r} is not in UTC")
    return {"hours": [hour.replace(tzinfo=None).isoformat() for hour in hours]}


def _text(value: Decimal) -> str:
    return f"{value.normalize():f}"
