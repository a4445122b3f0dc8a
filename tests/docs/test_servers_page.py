"""The page about servers says what the data says."""

from __future__ import annotations

from pathlib import Path

from agentkit.providers.profiles import PROFILES, Profile

PAGE = (Path(__file__).parent.parent.parent / "docs" / "servers.md").read_text()
HEAD = "| Name | Address | Key | Protocols | Schemas | Left out |\n|---|---|---|---|---|---|"
SCHEMAS = {"strict": "strict", "enforced": "enforced", "prompt": "JSON mode and prompt", "text": "prompt"}


def row(profile: Profile) -> str:
    """Return a profile as a line of the table."""
    cells = (
        f"`{profile.name}`",
        f"`{profile.base_url}`" if profile.base_url else "yours",
        " or ".join(f"`{name}`" for name in profile.key_variables) or "none needed",
        ", ".join((profile.protocol, *(name for name in profile.protocols if name != profile.protocol))),
        SCHEMAS[profile.schemas],
        ", ".join(f"`{name}`" for name in sorted(profile.rejects)) or "nothing",
    )
    return f"| {' | '.join(cells)} |"


def test_the_table_is_the_data() -> None:
    """Every profile is a row, as the data file has it; the expected table is shown when it differs."""
    expected = "\n".join((HEAD, *map(row, PROFILES.values())))
    assert expected in PAGE, f"docs/servers.md has another table than the profiles; write this one:\n{expected}"


def test_every_server_is_described() -> None:
    """What a server differs in, beyond the table, is told under its name."""
    plain = Profile(name="", null_content="null")
    told = ("roles", "echo", "output_is_rest", "thinking_switch", "images", "named_tool", "renames", "call_ids")
    for name, profile in PROFILES.items():
        if any(getattr(profile, field) != getattr(plain, field) for field in told):
            assert f"**{name}**" in PAGE, f"docs/servers.md does not say what {name} differs in"


def test_every_field_of_a_profile_is_explained() -> None:
    """A profile's docstring names each of its fields."""
    text = Profile.__doc__ or ""
    assert [name for name in Profile.__struct_fields__ if f"`{name}`" not in text and name != "name"] == ["headers"]
