"""Writes the shipped snapshot of list prices from the genai-prices package: python scripts/make_prices.py"""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

from genai_prices import data

TARGET = Path(__file__).parent.parent / "src/agentkit/catalog/data/prices.json"
PROVIDERS = {
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
FIELDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
}


def names(match: object) -> list[str]:
    """Return the exact names a clause mentions; patterns are left out."""
    kind = type(match).__name__
    if kind == "ClauseEquals":
        return [match.equals]
    if kind == "ClauseStartsWith":
        return [match.starts_with.rstrip("@")]
    if kind == "ClauseOr":
        return [name for clause in match.or_ for name in names(clause)]
    return []


def text(value: Decimal) -> str:
    return f"{value.normalize():f}"


def rates(prices: object, inherited: dict | None = None) -> dict | None:
    """Return one rule's rates; None for models that are not priced by input and output tokens."""
    row: dict = {}
    bands: dict[int, dict] = {}
    for ours, theirs in FIELDS.items():
        value = getattr(prices, theirs, None)
        if value is None:
            if inherited and ours in inherited:
                row[ours] = inherited[ours]
            continue
        if isinstance(value, Decimal):
            row[ours] = text(value)
        else:
            row[ours] = text(value.base)
            for tier in value.tiers:
                bands.setdefault(tier.start, {})[ours] = text(tier.price)
    if "input" not in row or "output" not in row:
        return None
    below = {field: row[field] for field in FIELDS if field in row}
    for start in sorted(bands):
        below = {**below, **bands[start]}
        row.setdefault("bands", []).append({**below, "above": start})
    return row


def when(constraint: object) -> dict:
    """Return the day from which, or the hours (UTC) in which, a price applies."""
    if constraint is None:
        return {}
    if isinstance(day := getattr(constraint, "start_date", None), datetime.date):
        return {"from": day.isoformat()}
    hours = [constraint.start_time, constraint.end_time]
    if any(hour.utcoffset() not in (None, datetime.timedelta(0)) for hour in hours):
        raise ValueError(f"{constraint!r} is not in UTC")
    return {"hours": [hour.replace(tzinfo=None).isoformat() for hour in hours]}


def rules(model: object) -> list[dict]:
    found: list[dict] = []
    listed = (
        model.prices
        if isinstance(model.prices, list)
        else [type("Always", (), {"constraint": None, "prices": model.prices})]
    )
    standard: dict | None = None
    for entry in listed:
        row = rates(entry.prices)
        if row is not None:
            limits = when(entry.constraint)
            standard = standard if "hours" in limits else row
            found.append({**limits, **row})
    for variant in model.price_variants or []:
        tier = variant.when.get("service_tier") or ("batch" if variant.when.get("processing") == "batch" else None)
        row = rates(variant.prices, standard) if tier not in (None, "default") else None
        if row is not None:
            found.append({"tier": tier, **when(variant.constraint), **row})
    return found


def main() -> None:
    models: dict[str, dict] = {}
    for provider in data.providers:
        ours = PROVIDERS.get(provider.id)
        if ours is None:
            continue
        table: dict[str, dict] = {}
        for model in provider.models:
            found = rules(model)
            if not found:
                continue
            entry = {"rules": found, **({"context": model.context_window} if model.context_window else {})}
            main_name = ""
            for name in dict.fromkeys([model.id, *names(model.match)]):
                if name and not name.endswith("-") and name not in table:
                    table[name] = {"same": main_name} if main_name else entry
                    main_name = main_name or name
        models[ours] = dict(sorted(table.items()))
    snapshot = {
        "taken": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "source": f"genai-prices {version('genai-prices')}",
        "models": models,
    }
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(snapshot, separators=(",", ":")).replace('},"', '},\n"') + "\n")
    print({provider: len(table) for provider, table in models.items()}, TARGET.stat().st_size)


if __name__ == "__main__":
    main()
