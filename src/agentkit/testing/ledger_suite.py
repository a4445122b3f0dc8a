"""What every ledger has to hold, as checks that a test of your own ledger runs.

`make` opens a new, empty ledger over the clock it is given, as an async context manager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from decimal import Decimal

from agentkit.core.contracts import (
    CostQuery,
    CostRecord,
    EntryState,
    LedgerEntry,
    LedgerStore,
    SharedCeiling,
    SharedSpend,
    Usage,
)
from agentkit.core.runtime.clock import Clock
from agentkit.testing.clock import ManualClock

__all__ = ["LEDGER_CHECKS", "check_ledger_store"]

_EVERYTHING = CostQuery(tenant="acme")


async def check_ledger_store(make: Callable[[Clock], AbstractAsyncContextManager[LedgerStore]]) -> None:
    """Raise AssertionError naming what a ledger does wrong; every check gets a new ledger."""
    for check in LEDGER_CHECKS:
        clock = ManualClock()
        async with make(clock) as ledger:
            await check(ledger, clock)


def entry(
    clock: Clock,
    call_id: str,
    cost: str | None = "0.01",
    *,
    tenant: str = "acme",
    state: EntryState = "settled",
    accepted: bool = True,
    **record: object,
) -> LedgerEntry:
    """Return a row; an open one has no cost and no usage yet."""
    known = Decimal(cost or 0) if state == "settled" else Decimal(0)
    values: dict[str, object] = {
        "run_id": "run-1",
        "path": "lead/helper@1.0",
        "call_id": call_id,
        "attempt": 1,
        "purpose": "main",
        "provider": "openai",
        "model": "m",
        "outcome": "ok",
        "usage": Usage(3, 5) if state == "settled" else Usage(None, None),
        "cost": known if cost is not None and state == "settled" else None,
        "known_cost": known,
        "accepted": accepted,
        **record,
    }
    row = CostRecord(**values)  # type: ignore[arg-type]
    return LedgerEntry(tenant=tenant, record=row, at=clock.wall(), user="ann", session="s1", state=state)


async def keeps_every_row(ledger: LedgerStore, clock: ManualClock) -> None:
    """Rows come back in order with their exact money, unknown stays unknown, and another tenant sees none."""
    costs = ("0.000000000001", None, "12345678901234567890.123456789012", "0.10")
    rows = [entry(clock, f"c{number}", cost) for number, cost in enumerate(costs)]
    await ledger.settle(rows[:2])
    await ledger.settle(rows[2:])
    await ledger.settle([])
    await ledger.settle([entry(clock, "c0", "7", tenant="other")])
    page = await ledger.entries(_EVERYTHING)
    assert list(page.entries) == rows, f"rows changed, or their order: {page.entries!r}"
    assert page.next is None, "there is nothing after the last row"
    assert [str(row.record.cost) for row in page.entries] == [str(row.record.cost) for row in rows], "money changed"
    assert len((await ledger.entries(CostQuery(tenant="other"))).entries) == 1, "rows of another tenant were read"
    assert not (await ledger.entries(CostQuery(tenant="stranger"))).entries, "rows of another tenant were read"
    assert len((await ledger.entries(CostQuery(tenant=None))).entries) == 5, "the host's own view misses rows"


async def pages(ledger: LedgerStore, clock: ManualClock) -> None:
    """A long answer comes in pages that hold every row once."""
    await ledger.settle([entry(clock, f"c{number}") for number in range(7)])
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        page = await ledger.entries(_EVERYTHING, after=after, limit=3)
        assert len(page.entries) <= 3, "a page is longer than was asked for"
        seen += [row.record.call_id for row in page.entries]
        after = page.next
    assert seen == [f"c{number}" for number in range(7)], f"the pages hold {seen}"


async def tells_an_end_once(ledger: LedgerStore, clock: ManualClock) -> None:
    """A row is open, then settled for good: telling it again, or otherwise, changes nothing."""
    opened = entry(clock, "c1", state="open")
    assert await ledger.begin(opened) is None
    assert [row.state for row in (await ledger.entries(_EVERYTHING)).entries] == ["open"]
    (total,) = await ledger.totals(_EVERYTHING)
    assert (total.cost, total.incomplete, total.unknown, total.calls) == (None, 1, 1, 0), f"an open row sums to {total}"
    clock.advance(5)
    await ledger.settle([entry(clock, "c1", "0.02")])
    await ledger.settle([entry(clock, "c1", "9"), entry(clock, "c2", "0.01"), entry(clock, "c2", "5")])
    await ledger.begin(entry(clock, "c2", state="open"))
    rows = (await ledger.entries(_EVERYTHING)).entries
    assert [row.record.cost for row in rows] == [Decimal("0.02"), Decimal("0.01")], f"an end was told twice: {rows!r}"
    assert rows[0].at == opened.at, "a settled row says when its attempt began"


async def holds_a_ceiling(ledger: LedgerStore, clock: ManualClock) -> None:
    """What is spent, held and uncertain never passes the ceiling; landing on it does not pass it."""
    ceiling = SharedCeiling("acme/2026", Decimal("0.10"))

    async def begin(name: str, hold: str) -> bool | None:
        refusal = await ledger.begin(entry(clock, name, state="open"), hold=Decimal(hold), ceilings=[ceiling])
        return None if refusal is None else refusal.in_flight

    assert await begin("c1", "0.06") is None, "a bound that fits was refused"
    assert await begin("c2", "0.04") is None, "landing on the ceiling was refused"
    assert await begin("c3", "0.01") is True, "it would fit once the others are over"
    assert await begin("c4", "0.11") is False, "it can never fit"
    assert await ledger.standing(ceiling.key) == SharedSpend(Decimal(0), Decimal("0.10")), "what is held is wrong"
    await ledger.settle([entry(clock, "c1", "0.02")])
    assert await begin("c3", "0.04") is None, "what an attempt did not use is not free again"
    await ledger.settle([entry(clock, "c2", None)])
    standing = await ledger.standing(ceiling.key)
    assert standing == SharedSpend(Decimal("0.02"), Decimal("0.04"), Decimal("0.04")), (
        f"an unpriced end left {standing}"
    )
    await ledger.settle([entry(clock, "c3", None, accepted=False)])
    assert await begin("c5", "0.05") is False, "an uncertain amount was given away"
    assert await begin("c6", "0.04") is None, "what was never accepted stays held"
    assert await ledger.standing("another") == SharedSpend(), "another key counts the same"


async def holds_a_key_once(ledger: LedgerStore, clock: ManualClock) -> None:
    """Two ceilings under one key hold an attempt once, and the lower one is what holds."""
    two = [SharedCeiling("acme", Decimal("0.10")), SharedCeiling("acme", Decimal("0.05"))]
    refusal = await ledger.begin(entry(clock, "c1", state="open"), hold=Decimal("0.06"), ceilings=two)
    assert refusal is not None, "the lower ceiling was passed"
    assert refusal.ceiling == two[1], f"the lower ceiling was passed: {refusal}"
    assert await ledger.begin(entry(clock, "c1", state="open"), hold=Decimal("0.04"), ceilings=two) is None
    assert (await ledger.standing("acme")).held == Decimal("0.04"), "an attempt was held twice"
    await ledger.settle([entry(clock, "c1", "0.02")])
    assert await ledger.standing("acme") == SharedSpend(Decimal("0.02")), (
        "an end gave back another amount than was held"
    )


async def loses_what_nobody_ends(ledger: LedgerStore, clock: ManualClock) -> None:
    """After its lease an open row is lost and holds nothing; an end that is told late still counts."""
    ceiling = SharedCeiling("acme", Decimal("0.10"))
    opened = entry(clock, "c1", state="open")
    assert await ledger.begin(opened, hold=Decimal("0.10"), ceilings=[ceiling], lease=30) is None
    clock.advance(29)
    assert (await ledger.standing("acme")).held == Decimal("0.10"), "a lease ended early"
    clock.advance(1)
    assert (await ledger.standing("acme")).held == 0, "a lease has run out and its hold stands"
    (row,) = (await ledger.entries(_EVERYTHING)).entries
    assert row.state == "lost", f"the row says {row.state}"
    second = entry(clock, "c2", state="open")
    assert await ledger.begin(second, hold=Decimal("0.10"), ceilings=[ceiling]) is None
    await ledger.settle([entry(clock, "c1", "0.03")])
    assert await ledger.standing("acme") == SharedSpend(Decimal("0.03"), Decimal("0.10")), "a late end does not count"
    (total,) = await ledger.totals(_EVERYTHING)
    assert (total.known_cost, total.incomplete) == (Decimal("0.03"), 1)


async def admits_no_more_than_fit(ledger: LedgerStore, clock: ManualClock) -> None:
    """Of many that begin at once, as many are let in as fit."""
    ceiling = SharedCeiling("acme", Decimal("0.10"))
    tries = [
        ledger.begin(entry(clock, f"c{number}", state="open"), hold=Decimal("0.03"), ceilings=[ceiling])
        for number in range(20)
    ]
    refusals = await asyncio.gather(*tries)
    assert sum(refusal is None for refusal in refusals) == 3, "the ceiling let in another number than fits"
    again = await ledger.begin(entry(clock, "c0", state="open"), hold=Decimal("0.03"), ceilings=[ceiling])
    assert again is None or refusals[0] is not None, "beginning the same attempt again was refused"
    assert (await ledger.standing("acme")).held == Decimal("0.09"), "an attempt was held twice"


async def sums_by_what_is_asked(ledger: LedgerStore, clock: ManualClock) -> None:
    """Sums are exact, by any dimensions, over a half-open time; one unknown cost makes a sum a lower bound."""
    start = clock.wall()
    await ledger.settle([entry(clock, f"a{number}", "0.1") for number in range(10)])
    clock.advance(86_400)
    middle = clock.wall()
    await ledger.settle([entry(clock, "b1", "1", model="x", agent="lead"), entry(clock, "b2", None, model="x")])
    await ledger.settle([entry(clock, "b1", "5", tenant="other", attempt=2, accepted=False)])
    (all_of_it,) = await ledger.totals(_EVERYTHING)
    assert (all_of_it.key, all_of_it.known_cost, all_of_it.cost) == ((), Decimal(2), None), f"{all_of_it}"
    assert (all_of_it.calls, all_of_it.attempts, all_of_it.input_tokens, all_of_it.output_tokens) == (12, 12, 36, 60)
    days = await ledger.totals(CostQuery(tenant="acme", by=("day", "model")))
    found = [(total.key, total.known_cost, total.incomplete) for total in days]
    wanted = [
        ((start.date().isoformat(), "m"), Decimal(1), 0),
        ((middle.date().isoformat(), "x"), Decimal(1), 1),
    ]
    assert found == wanted, f"by day and model: {found}"
    early = await ledger.totals(CostQuery(tenant="acme", until=middle))
    late = await ledger.totals(CostQuery(tenant="acme", since=middle, until=middle + timedelta(seconds=1)))
    assert (early[0].known_cost, late[0].known_cost) == (Decimal(1), Decimal(1)), "the end of a time is not in it"
    tenants = await ledger.totals(CostQuery(tenant=None, by=("tenant", "user", "session", "agent", "run", "purpose")))
    assert [total.key[0] for total in tenants] == ["acme", "acme", "other"], f"{tenants}"
    assert [total.key[3] for total in tenants] == ["", "lead", ""], f"{tenants}"
    assert tenants[2].calls == 0, "an attempt that was not accepted is no call"
    assert await ledger.totals(CostQuery(tenant="stranger", by=("model",))) == []
    assert await ledger.totals(CostQuery(tenant="acme", model="y")) == []


LEDGER_CHECKS: tuple[Callable[[LedgerStore, ManualClock], Awaitable[None]], ...] = (
    keeps_every_row,
    pages,
    tells_an_end_once,
    holds_a_ceiling,
    holds_a_key_once,
    loses_what_nobody_ends,
    admits_no_more_than_fit,
    sums_by_what_is_asked,
)
