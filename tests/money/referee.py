"""What has to hold of a world whenever all of it waits, and when it is over."""

from __future__ import annotations

from decimal import Decimal

from money.gates import all_rows
from money.world import KEY, LONG, SCOPES

from agentkit.core.contracts import CostQuery

EVERYTHING = CostQuery(tenant=None)


async def check(world):
    """Each request has one row of what it was worth, and every sum is the sum of those rows."""
    records = records_of(world)
    over = {one.key: one for one in world.seen if not one.live}
    assert len({one.key for one in world.seen}) == len(world.seen)
    assert set(over) <= set(records)
    for key, record in records.items():
        if key in over:
            worth(over[key], record)
        else:  # it ended before it was sent
            assert (record.cost, record.accepted) == (0, False)
    check_meters(world, records)
    await check_ledger(world, records)


def records_of(world):
    """Return the rows that the runs' own accounts hold, by attempt; none is there twice."""
    found = {}
    for contexts in world.contexts.values():
        for ctx in contexts:
            for record in ctx.account.records:
                key = record.run_id, record.call_id, record.attempt
                assert key not in found
                found[key] = record
    return found


def worth(one, record):
    """The row says what the provider did, at the price of the model that did it."""
    if one.estimated:
        assert record.usage.estimated
        assert (record.cost is None) == (one.prices is None)
    if one.estimated and one.prices is not None:
        assert record.cost >= one.least
        assert record.cost > 0
    elif not one.estimated:
        assert (record.cost, record.at_least) == (one.cost, one.least)
    assert record.model == one.call.route.model
    assert not one.finished or record.accepted


def total(rows):
    """Return the dollars of rows, exactly."""
    amounts = [row.at_least for row in rows]
    assert all(type(amount) is Decimal for amount in amounts)
    return sum(amounts, Decimal(0))


def check_meters(world, records):
    """Every meter counts the rows of its runs, and has reserved only for attempts that are under way."""
    under_way = {one.key for one in world.seen if one.live} | {
        (entry.record.run_id, entry.record.call_id, entry.record.attempt)
        for place, entry, _ in world.gates.parked
        if place in ("begin", "begun")
    }
    meters = [*world.budgets, world.quota]
    under_way.update(key for meter in meters for key in meter.entering)
    bounds = {}
    for meter in meters:
        for key, (_, quote) in meter.live.items():
            assert bounds.setdefault(key, quote) == quote
    held_back = sum(place == "acquire" for place, *_ in world.gates.parked)
    assert len({key for meter in meters for key in meter.live} - under_way) <= held_back
    assert world.life.spent() == total(records.values())
    for budget in (world.group, world.shared):
        runs = {run for run, (ctx, *_) in world.contexts.items() if ctx.budget is budget}
        assert budget.spent() == total(record for record in records.values() if record.run_id in runs)
    for run, (whole, part) in world.actors.items():
        used = total(record for record in records.values() if record.run_id == run)
        over = world.tasks[run].done()
        assert part.used_cost() == used
        assert whole.reserved_cost() == (0 if over else 6)
        assert whole.used_cost() == (min(used, Decimal(6)) if over else 0)
    for run, (ctx, *_) in world.contexts.items():
        if world.kinds[run] == "lead" and not world.tasks[run].done():
            mine = total(record for record in records.values() if record.run_id == run)
            assert ctx.budget.account(ctx.scope.tenant, run).spent == mine


async def check_ledger(world, records):
    """The ledger has a row of each request, and no other but of one that was never sent, which says so."""
    rows = {row.id[1:]: row for row in await all_rows(world.ledger.store, EVERYTHING)}
    sent = {one.key for one in world.seen}
    assert sent <= set(rows)
    for key, row in rows.items():
        if row.state == "open":
            assert key in sent or world.setup.slow_ledger or world.setup.slow_host
        elif key in sent:
            assert row.record == records[key]
        else:
            assert (row.record.cost, row.record.accepted) == (0, False)
    if world.setup.shared is not None:
        standing = await world.ledger.store.standing(KEY)
        taken = standing.spent + standing.held + standing.uncertain
        assert not world.setup.strict or taken <= world.shared.max_cost_usd


async def check_end(world):
    """All is over: nothing is reserved, nobody waits, and the ledger, the answers and the meters say the same."""
    records = records_of(world)
    rows = {row.id[1:]: row for row in await all_rows(world.ledger.store, EVERYTHING)}
    assert {row.state for row in rows.values()} <= {"settled"}
    assert {key for key, row in rows.items() if row.record.accepted or row.record.at_least} <= set(records)
    for budget in world.budgets:
        assert not budget.live
        assert not budget._room.busy
        assert budget.held() == 0
    if world.setup.shared is not None:
        standing = await world.ledger.store.standing(KEY)
        assert standing.held == 0
        assert standing.spent == world.shared.spent()
        ours = world.shared.uncertain()
        resized = world.setup.midstream or world.setup.unlisted  # the ledger keeps the bound an attempt began with
        assert standing.uncertain >= ours if resized and world.setup.strict else resized or standing.uncertain == ours
    for run, result in world.results.items():
        mine = [row.record for key, row in rows.items() if key[0] == run]
        assert result.known_cost == total(mine)
        assert (result.cost is None) == any(row.cost is None for row in mine)
        assert result.calls == sum(row.accepted for row in mine)
    once(world)
    world.clock.advance(2 * LONG)
    for scope in SCOPES:
        assert world.quota.spent_in_window(scope.key()) == 0
    assert world.quota.keys() == ()


def once(world):
    """No turn of a run that was suspended and went on was answered, and paid, twice."""
    turns = [
        (one.call.ctx.correlation_id, one.call.ctx.path, one.call.purpose, len(one.call.request.messages))
        for one in world.seen
        if one.finished
        and world.kinds[one.call.ctx.correlation_id] == "lead"
        and one.call.ctx.correlation_id not in world.cut
    ]
    assert len(set(turns)) == len(turns)
