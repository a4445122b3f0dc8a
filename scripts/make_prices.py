"""Writes the shipped snapshot of list prices from the installed genai-prices: python scripts/make_prices.py"""

from __future__ import annotations

import json
from pathlib import Path

from agentkit.catalog.genai import convert_genai_prices

TARGET = Path(__file__).parent.parent / "src/agentkit/catalog/data/prices.json"


def main() -> None:
    snapshot = convert_genai_prices()
    TARGET.write_text(json.dumps(snapshot, separators=(",", ":")).replace('},"', '},\n"') + "\n")
    print({provider: len(table) for provider, table in snapshot["models"].items()}, TARGET.stat().st_size)


if __name__ == "__main__":
    main()
