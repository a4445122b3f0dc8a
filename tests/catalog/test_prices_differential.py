"""The shipped prices, found and multiplied here, against the package they were taken from."""

from __future__ import annotations

import importlib.metadata
import random
from datetime import UTC, datetime, timedelta

import pytest

from agentkit.catalog import DEFAULT_PRICES, cost
from agentkit.catalog.snapshot import load_snapshot
from agentkit.core.contracts import Usage

THEIR_IDS = {"gemini": "google", "xai": "x-ai"}
INPUTS = [1_000, 150_000, 199_999, 200_000, 200_001, 300_000]


def test_costs_are_those_of_the_source() -> None:
    """Over all shipped models, moments, bands and cache parts the source finds the same dollars, or nothing."""
    genai_prices = pytest.importorskip("genai_prices")
    snapshot = load_snapshot()
    if snapshot.source != f"genai-prices {importlib.metadata.version('genai-prices')}":
        pytest.skip(f"the snapshot was taken from {snapshot.source}")
    pick = random.Random(7)
    compared = 0
    for provider, models in snapshot.models.items():
        for name in models:
            total = pick.choice(INPUTS)
            read, written = pick.randrange(total // 3), pick.randrange(1, total // 3)
            hour = pick.randrange(written)
            moment = datetime(2025, 5, 1, tzinfo=UTC) + timedelta(minutes=pick.randrange(60 * 24 * 570))
            rates = DEFAULT_PRICES.find(provider, name, at=moment)
            theirs = genai_prices.Usage(
                input_tokens=total,
                output_tokens=777,
                cache_read_tokens=read,
                cache_write_tokens=written,
                cache_write_1h_tokens=hour,
                cache_write_5m_tokens=written - hour,
            )
            try:
                expected = genai_prices.calc_price(
                    theirs, name, provider_id=THEIR_IDS.get(provider, provider), genai_request_timestamp=moment
                )
            except LookupError:
                continue  # an id of theirs that their own patterns do not match
            assert rates is not None, f"{provider}/{name} is unpriced on {moment}"
            ours = cost(rates, Usage(total, 777, read, written, hour))
            assert ours is not None
            assert abs(ours - expected.total_price) < 1e-11, f"{provider}/{name} on {moment}"
            compared += 1
    assert compared > 1_000


def test_searches_and_spoken_input_cost_what_the_source_says() -> None:
    """Units beside tokens, and tokens of a modality, come to the same dollars."""
    genai_prices = pytest.importorskip("genai_prices")
    compared = 0
    for provider, models in load_snapshot().models.items():
        for name in models:
            rates = DEFAULT_PRICES.find(provider, name)
            if rates is None or rates.bands:
                continue
            priced = {rate.unit for rate in rates.units}
            for unit in priced & {"web_searches", "input_audio_tokens"}:
                theirs = genai_prices.Usage(input_tokens=1_000, output_tokens=10, **{unit: 300})
                try:
                    expected = genai_prices.calc_price(theirs, name, provider_id=THEIR_IDS.get(provider, provider))
                except LookupError:
                    continue
                ours = cost(rates, Usage(1_000, 10, units=((unit, 300),)))
                assert ours is not None
                assert abs(ours - expected.total_price) < 1e-11, f"{provider}/{name}: {unit}"
                compared += 1
    assert compared > 20


def test_an_installed_source_that_is_newer_is_read_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package wins when its version is later than the snapshot's, and says so in each rule's name."""
    pytest.importorskip("genai_prices")
    shipped = load_snapshot()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99.0.0")
    load_snapshot.cache_clear()
    try:
        newer = load_snapshot()
        assert newer.source == "genai-prices 99.0.0"
        assert newer.models["openai"].keys() == shipped.models["openai"].keys()
    finally:
        load_snapshot.cache_clear()
