"""Names that are commands, days that are none, tables that mean nothing: what people read is right or refused."""

from __future__ import annotations

import csv
import io
import sqlite3
import xml.etree.ElementTree as ET
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from agentkit import Binding, CallRuntime, Scope, Usage
from agentkit.catalog import PriceRow, PriceTable, load_prices
from agentkit.cli.main import main
from agentkit.core.contracts import Rates, UnitRate
from agentkit.errors import ConfigurationError
from agentkit.testing import Reply, ScriptedModel

ONE = Decimal(1)
TENANTS = {
    "=1+2": "'=1+2",
    "@sum": "'@sum",
    "+cmd|x": "'+cmd|x",
    "-1": "-1",
    "+49 30 1": "+49 30 1",
    "\x1b[2Jred": "\\x1b[2Jred",
    "line\nacme,9": "line\\nacme,9",
    "back\racme": "back\\racme",
    "\u202eevil": "\\u202eevil",
}


@pytest.fixture
async def store(tmp_path):
    """Return the file in which tenants with such names spent."""
    file = tmp_path / "runs.db"
    binding = Binding(ScriptedModel([Reply("a", usage=Usage(1000, 100))], repeat_last=True), price="1/10")
    async with CallRuntime(store=f"sqlite:{file}") as calls:
        for tenant in TENANTS:
            await calls.ask(binding, "q", ctx=calls.context(None, Scope(tenant=tenant)))
    return file


def costs(capsys, *options):
    """Run `agentkit costs` and return its exit code and what it printed."""
    code = main(["costs", *map(str, options)])
    return code, capsys.readouterr()


def test_a_tenants_name_is_no_command(store, tmp_path, capsys):
    """Neither a terminal, a spreadsheet nor a picture takes a name for anything but a name; each is one row."""
    code, told = costs(capsys, "--store", store, "--plot", tmp_path / "bars.svg")
    assert code == 0
    assert all(line.isprintable() for line in told.out.splitlines())
    assert len(told.out.splitlines()) == len(TENANTS) + 4
    ET.parse(tmp_path / "bars.svg")
    code, told = costs(capsys, "--store", store, "--format", "csv")
    assert {row["tenant"] for row in csv.DictReader(io.StringIO(told.out, newline=""))} == set(TENANTS.values())


@pytest.mark.parametrize(
    ("option", "day"),
    [("--until", "20991231"), ("--until", "9999-12-31"), ("--until", "2099-W01-1"), ("--since", "20000101")],
)
def test_a_day_is_all_of_it_however_it_is_written(store, capsys, option, day):
    """Every spelling of a day that is taken means the same."""
    code, told = costs(capsys, "--store", store, "--by", "", option, day)
    assert (code, "everything" in told.out) == (0, True)


@pytest.mark.parametrize("day", ["2026-13-01", "0001-01-01T00:00:00+10:00", "9999-12-31T23:00:00-10:00", "soon", ""])
@pytest.mark.parametrize("command", [["costs", "--since"], ["costs", "--until"], ["prices", "explain", "x:y", "--at"]])
def test_a_moment_that_is_none_is_refused_by_its_option(store, capsys, command, day):
    """Bad input ends with code 2 and names the option."""
    extra = ["--store", str(store)] if command[0] == "costs" else []
    assert main([*command, day, *extra]) == 2
    assert command[-1] in capsys.readouterr().err


@pytest.mark.parametrize("spelled", ["%Y-%m-%d", "%Y%m%d", "%G-W%V-%u"])
def test_until_today_holds_today(store, capsys, spelled):
    """What was just spent is in a report up to and with this day, whichever way the day is written."""
    day = datetime.now(UTC).strftime(spelled)
    code, told = costs(capsys, "--store", store, "--by", "", "--until", day)
    assert (code, "everything" in told.out) == (0, True)


def test_asking_makes_no_tables_in_another_programs_file(tmp_path, capsys):
    """A database that is not ours is named and left as it is."""
    file = tmp_path / "other.db"
    db = sqlite3.connect(file)
    db.execute("CREATE TABLE schema_version (version TEXT)")
    db.commit()
    code, told = costs(capsys, "--store", file)
    assert (code, "no ledger" in told.err) == (2, True)
    assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)
    db.close()


@pytest.mark.parametrize("usage", ["input=1e9999", "input=NaN", "input=-5", "input=1.5", "pages=inf", "pages=-1"])
def test_a_usage_that_cannot_be_is_refused(usage, capsys):
    """Numbers that no call can have used are bad input, not a traceback or a wrong bill."""
    assert main(["prices", "explain", "openai:gpt-5", "--usage", usage]) == 2
    assert usage in capsys.readouterr().err


@pytest.mark.parametrize(
    "rule",
    [
        'input = 1\noutput = 1\nmarginal = "yes"',
        "input = 0.0000000000001\noutput = 1",
        'input = 1\noutput = 1\ntier = "default"',
        "input = 1\noutput = 1\nfrom = 2026-02-01\nuntil = 2026-01-01",
        "input = 1\noutput = 1\nhours = [10:00:00, 10:00:00]",
        'input = 1\noutput = 1\nunits = [{unit = "x", price = 1}, {unit = "x", price = 2}]',
    ],
)
def test_a_rule_that_would_be_read_otherwise_or_never_hold_is_refused(rule, tmp_path):
    """What a table cannot mean is said when it is loaded, not found out from a bill."""
    file = tmp_path / "prices.toml"
    file.write_text(f'[[rule]]\nprovider = "acme"\nmodel = "m"\n{rule}\n')
    with pytest.raises(ConfigurationError, match="acme:m"):
        load_prices(file)


@pytest.mark.parametrize(
    "fields",
    [
        {"tier": "standard"},
        {"starts": date(2026, 2, 1), "ends": date(2026, 2, 1)},
        {"hours": (time(1), time(1))},
        {"rates": Rates(ONE, ONE, units=(UnitRate("x", ONE), UnitRate("x", ONE)))},
    ],
    ids=str,
)
def test_rules_written_in_python_are_held_to_the_same(fields):
    """The same goes for rules that come from no file."""
    with pytest.raises(ConfigurationError, match="acme:m"):
        PriceTable([PriceRow(**{"provider": "acme", "model": "m", "rates": Rates(ONE, ONE), **fields})])
