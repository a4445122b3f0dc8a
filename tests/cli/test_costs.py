"""`agentkit costs` and `agentkit prices`: sums out of a real ledger, and why a price is what it is."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from decimal import Decimal

import pytest

from agentkit import Binding, CallRuntime, Scope
from agentkit.core.contracts import CostQuery, Usage
from agentkit.stores import open_store
from agentkit.testing import Reply, ScriptedModel
from agentkit.testing.loopback import HttpAnswer, LoopbackServer

TABLE = """
[[rule]]
provider = "acme"
model = "m-1"
input = "10"
output = "50"
cache_read = "1"
"""


@pytest.fixture
async def store(tmp_path):
    """Return the file in which two tenants spent, one of them on something without a price."""
    file = tmp_path / "runs.db"
    priced = Binding(ScriptedModel([Reply("a", usage=Usage(1000, 100))], repeat_last=True), price="1/10")
    unpriced = Binding(ScriptedModel([Reply("a", usage=Usage(5, 5))], repeat_last=True))
    unpriced.port.free = False
    async with CallRuntime(store=f"sqlite:{file}") as calls:
        for tenant, user, binding in (("acme", "ann", priced), ("acme", "bob", priced), ("globex", None, priced)):
            await calls.ask(binding, "q", ctx=calls.context(f"r-{user}", Scope(tenant=tenant, user=user)))
        await calls.ask(unpriced, "q", ctx=calls.context("r", Scope(tenant="globex")))
    return file


async def test_sums_of_a_ledger_as_table_json_csv_and_picture(store, command):
    """The three forms and the picture show the ledger's own sums, exact, and what is not known."""
    table = await command("costs", "--store", str(store), "--by", "tenant,user")
    assert (table.code, table.err) == (0, "")
    lines = [line.split() for line in table.out.splitlines()]
    assert lines[0] == ["tenant", "user", "calls", "attempts", "input", "output", "cost"]
    assert ["acme", "ann", "1", "1", "1000", "100", "$0.002"] in lines
    assert ["globex", "-", "2", "2", "1005", "105", ">=", "$0.002"] in lines
    assert ["total", "4", "4", "3005", "305", ">=", "$0.006"] in lines
    assert "1 attempts have no known cost" in table.out

    told = await command("costs", "--store", f"sqlite:{store}", "--by", "tenant,model", "--format", "json")
    rows = json.loads(told.out)
    ledger = open_store(store)
    sums = await ledger.ledger.totals(CostQuery(tenant=None, by=("tenant", "model")))
    await ledger.aclose()
    assert [(row["tenant"], Decimal(row["known_cost"]), row["incomplete"]) for row in rows] == [
        (total.key[0], total.known_cost, total.incomplete) for total in sums
    ]
    assert [row["cost"] for row in rows] == ["0.004", None]

    sheet = await command("costs", "--store", str(store), "--by", "day", "--format", "csv", "--tenant", "acme")
    (row,) = csv.DictReader(io.StringIO(sheet.out))
    assert (row["calls"], row["cost"], row["input_tokens"]) == ("2", "0.004", "2000")

    picture = store.with_name("costs.svg")
    drawn = await command("costs", "--store", str(store), "--by", "user", "--plot", str(picture))
    assert drawn.code == 0
    texts = [text.text for text in ET.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert {"ann", "bob", "-", "$0.002"} <= set(texts)


async def test_a_time_is_half_open_and_a_day_as_an_end_is_all_of_it(store, command):
    """Nothing was spent before today; today is in it when it is the end."""
    ledger = open_store(store)
    rows = (await ledger.ledger.entries(CostQuery(tenant="acme"))).entries
    await ledger.aclose()
    today = rows[0].at.date().isoformat()
    early = await command("costs", "--store", str(store), "--until", f"{today}T00:00:00")
    assert "holds no row" in early.out
    whole = await command("costs", "--store", str(store), "--by", "", "--since", today, "--until", today)
    assert whole.out.splitlines()[2].split()[:3] == ["everything", "4", "4"]


async def test_costs_refuse_what_cannot_be_asked(store, command):
    """A dimension, a day or a file that does not exist is named, and no file is made."""
    wrong = await command("costs", "--store", str(store), "--by", "tenant,colour")
    assert (wrong.code, wrong.out) == (2, "")
    assert "--by colour: choose from tenant, user" in wrong.err
    assert "--since yesterday" in (await command("costs", "--store", str(store), "--since", "yesterday")).err
    missing = await command("costs", "--store", "sqlite:nothing.db")
    assert missing.code == 2
    assert "there is no such file" in missing.err
    assert not (command.folder / "nothing.db").exists()


async def test_prices_are_listed_and_explained(command):
    """The rule that holds, the runner-up, what does not apply, and the bill of a usage line by line."""
    listed = await command("prices", "list", "openai")
    assert listed.code == 0
    assert any(line.split() == ["gpt-5.2", "1.75", "14", "0.175"] for line in listed.out.splitlines())
    told = await command("prices", "explain", "openai:gpt-5.2", "--at", "2026-12-01", "--tier", "flex")
    assert told.code == 0
    assert told.out.startswith("holds      genai-prices")
    assert "flex" in told.out.splitlines()[0]
    assert "it is for tier batch" in told.out
    unknown = await command("prices", "explain", "openai:gpt-5.2x")
    assert unknown.code == 1
    assert "unpriced, not free" in unknown.out
    assert "gpt-5.2" in unknown.out
    assert (await command("prices", "list", "nobody")).code == 2


async def test_a_table_of_ones_own_is_validated_and_explained(command):
    """A sound table is counted, a wrong one refused with its place; a rate it lacks leaves a bill unknown."""
    (command.folder / "prices.toml").write_text(TABLE)
    sound = await command("prices", "validate", "prices.toml")
    assert (sound.code, sound.out) == (0, "prices.toml: 1 rules for 1 models, all sound\n")
    (command.folder / "wrong.toml").write_text(TABLE * 2)
    wrong = await command("prices", "validate", "wrong.toml")
    assert wrong.code == 2
    assert "ambiguous" in wrong.err
    usage = ["input=15000", "cache_read=12000", "cache_write=2000", "output=500"]
    options = [part for each in usage for part in ("--usage", each)]
    bill = await command("prices", "explain", "acme:m-1", "--table", "prices.toml", *options)
    assert bill.code == 0
    lines = [line.split() for line in bill.out.splitlines()]
    assert ["cache_write_tokens", "2000", "unknown", "/", "1000000", "unknown"] in lines
    assert ["total", ">=", "$0.047"] in lines
    assert (await command("prices", "explain", "acme:m-1", "--table", "prices.toml", "--usage", "input=x")).code == 2


async def test_costs_that_providers_report_are_held_against_ours(tmp_path, command):
    """Of three attempts the one whose provider says another cost is listed, with the exact difference; then none."""
    file = tmp_path / "runs.db"
    told = [{"prompt_tokens": 1000, "completion_tokens": 100, "cost": cost} for cost in (0.002, 0.0025)]
    told.append({"prompt_tokens": 1000, "completion_tokens": 100})
    answers = [
        HttpAnswer(
            headers={"content-type": "application/json"},
            pieces=(json.dumps({"choices": [{"message": {"content": "a"}}], "usage": usage}).encode(),),
        )
        for usage in told
    ]
    async with LoopbackServer(answers) as server, CallRuntime(store=f"sqlite:{file}") as calls:
        binding = Binding("openrouter:m", base_url=server.url, api_key="k", price="1/10")
        for tenant in ("acme", "globex", "acme"):
            await calls.ask(binding, "q", ctx=calls.context("r", Scope(tenant=tenant)))
    table = await command("costs", "--store", str(file), "--reported")
    assert (table.code, table.err) == (0, "")
    (_, _, line) = [line.split() for line in table.out.splitlines()]
    assert line[-3:] == ["$0.002", "$0.0025", "$0.0005"]
    found = json.loads((await command("costs", "--store", str(file), "--reported", "--format", "json")).out)
    assert [each["difference"] for each in found] == ["$0.0005"]
    assert "$0.0005" in (await command("costs", "--store", str(file), "--reported", "--format", "csv")).out
    assert "No provider" in (await command("costs", "--store", str(file), "--reported", "--tenant", "acme")).out
