"""What models can do: exact rows, families, the provider's common row, and honest ignorance."""

from __future__ import annotations

from agentkit.catalog import DEFAULT_CAPABILITIES, Capabilities, CapabilityTable
from agentkit.catalog.capabilities import _listed
from agentkit.catalog.snapshot import load_snapshot

UNKNOWN = Capabilities()


def test_a_model_that_is_not_listed_is_unknown() -> None:
    """Nothing is guessed for an unknown provider, and the fields are None rather than no."""
    assert DEFAULT_CAPABILITIES.find("nobody", "gpt-4o") == UNKNOWN
    assert all(getattr(UNKNOWN, name) is None for name in UNKNOWN.__struct_fields__)


def test_an_unlisted_model_of_a_listed_provider_has_only_the_common_row() -> None:
    """What all models of a provider can do holds for a new one, and its limits stay unknown."""
    found = DEFAULT_CAPABILITIES.find("anthropic", "claude-quartz-9")
    assert found.tools is True
    assert found.max_output_tokens is None
    assert found.context_window is None


def test_a_listed_model_has_its_own_limits_over_the_common_row() -> None:
    """The model's row, the window of the price snapshot and the provider's common row are put together."""
    found = DEFAULT_CAPABILITIES.find("anthropic", "claude-haiku-4-5")
    assert found.max_output_tokens == 64_000
    assert found.context_window == 200_000
    assert found.parallel_tools is True
    assert DEFAULT_CAPABILITIES.find("openai", "gpt-3.5-turbo").structured_output is False


def test_dated_ids_and_aliases_are_the_model_they_name() -> None:
    """A real date falls back to the family, an alias to its model; a date that is none does not."""
    haiku = DEFAULT_CAPABILITIES.find("anthropic", "claude-haiku-4-5")
    assert DEFAULT_CAPABILITIES.find("anthropic", "claude-haiku-4-5-20251001") == haiku
    assert DEFAULT_CAPABILITIES.find("anthropic", "claude-haiku-4.5") == haiku
    assert DEFAULT_CAPABILITIES.find("anthropic", "claude-haiku-4-5-20251399") != haiku


def test_own_rows_win_and_replace_the_whole_row() -> None:
    """`with_model` changes a copy: dated ids follow it, other models keep what is shipped."""
    mine = Capabilities(max_output_tokens=7)
    table = DEFAULT_CAPABILITIES.with_model("openai", "gpt-4o", mine)
    assert table.find("openai", "gpt-4o") == mine
    assert table.find("openai", "gpt-4o-2024-08-06") == mine
    assert table.find("openai", "gpt-4o-mini") == DEFAULT_CAPABILITIES.find("openai", "gpt-4o-mini")
    assert DEFAULT_CAPABILITIES.find("openai", "gpt-4o") != mine


def test_a_table_of_rows_ships_nothing() -> None:
    """Given rows, even none, nothing shipped is known, also after a model was added."""
    mine = Capabilities(tools=False)
    assert CapabilityTable({}).find("openai", "gpt-4o") == UNKNOWN
    table = CapabilityTable({("p", "m"): mine}).with_model("p", "n", mine)
    assert [table.find("p", "m"), table.find("p", "n"), table.find("openai", "gpt-4o")] == [mine, mine, UNKNOWN]


def test_every_listed_row_is_of_a_model_that_is_reached() -> None:
    """A row counts only under the name its aliases lead to, so no row stands under an alias; limits are positive."""
    models = load_snapshot().models
    for provider, rows in _listed().items():
        for name, row in rows.items():
            entry = models.get(provider, {}).get(name)
            assert entry is None or entry.same is None, f"{provider}/{name} is an alias of {entry.same}"
            assert row.max_output_tokens is None or row.max_output_tokens > 0
            if name != "*":
                found = DEFAULT_CAPABILITIES.find(provider, name)
                assert all(
                    getattr(found, field) == value
                    for field in row.__struct_fields__
                    if (value := getattr(row, field)) is not None
                )
