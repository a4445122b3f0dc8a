"""What a run has used so far, its sub-agents included."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from typing import TypeAlias

from msgspec import Struct

from agentkit.core.contracts import (
    ZERO,
    ChatRequest,
    CostRecord,
    Message,
    OutputSpec,
    ToolSpec,
    Usage,
    add_money,
    subtract_money,
    total_usage,
)
from agentkit.core.runtime.metering.estimate import message_tokens, output_tokens, settings_tokens, spec_tokens

__all__ = ["NOTHING_YET", "AccountState", "Accounts", "RunAccount", "Tally"]

RunKey: TypeAlias = tuple[str, str]  # tenant, run id

_OUTPUTS_KEPT = 64
_KEPT_APART = 64  # attempts whose tokens are added up together, when nobody asks before


class AccountState(Struct, frozen=True):
    """A run's account as a checkpoint stores it; `spent` is dollars, `version` counts its charges."""

    spent: Decimal = ZERO
    unpriced: int = 0
    calls: int = 0
    usage: Usage = Usage()
    version: int = 0


NOTHING_YET = AccountState()
_NO_TOOLS: tuple[tuple[ToolSpec, ...], int] = ((), 0)


class Tally:
    """Sums of money, calls and tokens; not thread-safe by itself. Tokens are added up when somebody asks for them.

    `dearest` and `cheapest` are dollars of one accepted attempt, of those that were noted; None before the first.
    """

    __slots__ = ("_fresh", "_usage", "calls", "cheapest", "dearest", "spent", "unpriced", "version")

    def __init__(self, state: AccountState = NOTHING_YET) -> None:
        self.spent = state.spent
        self.unpriced = state.unpriced
        self.calls = state.calls
        self.version = state.version
        self.cheapest: Decimal | None = None
        self.dearest: Decimal | None = None
        self._usage = state.usage
        self._fresh: list[Usage] = []

    @property
    def usage(self) -> Usage:
        """Return the tokens of everything so far."""
        if self._fresh:
            self._add_up()
        return self._usage

    def add(self, usage: Usage, cost: Decimal | None) -> None:
        """Add one call; a cost of None makes the sum a lower bound for good."""
        self._usage = self.usage + usage
        self.calls += 1
        self.version += 1
        if cost is None:
            self.unpriced += 1
        else:
            self.spent = add_money(self.spent, cost)

    def add_record(self, record: CostRecord) -> None:
        """Add an attempt."""
        cost = record.cost
        if cost is None:
            self.unpriced += 1
            cost = record.known_cost
        self.spent = add_money(self.spent, cost)
        if record.accepted:
            self.calls += 1
        self.version += 1
        fresh = self._fresh
        fresh.append(record.usage)
        if len(fresh) >= _KEPT_APART:
            self._add_up()

    def add_records(self, records: Sequence[CostRecord]) -> None:
        """Add several attempts in one go."""
        costs = [record.known_cost if record.cost is None else record.cost for record in records]
        self.spent = reduce(add_money, costs, self.spent)
        self.unpriced += sum([record.cost is None for record in records])
        self.calls += sum([record.accepted for record in records])
        self.version += len(records)
        self._usage = total_usage(self.usage, [record.usage for record in records])

    def replace(self, old: AccountState, new: AccountState) -> None:
        """Count `new` where `old` was counted before."""
        self.spent = add_money(self.spent, subtract_money(new.spent, old.spent))
        self.unpriced += new.unpriced - old.unpriced
        self.calls += new.calls - old.calls
        self._usage = self.usage + new.usage.minus(old.usage)
        self.version += 1

    def state(self) -> AccountState:
        """Return the sums as a value."""
        return AccountState(self.spent, self.unpriced, self.calls, self.usage, self.version)

    def note(self, cost: Decimal) -> None:
        """Compare the dollars of an accepted attempt with those so far."""
        if self.dearest is None or self.cheapest is None:
            self.dearest = self.cheapest = cost
        elif cost > self.dearest:
            self.dearest = cost
        elif cost < self.cheapest:
            self.cheapest = cost

    def _add_up(self) -> None:
        self._usage = total_usage(self._usage, self._fresh)
        self._fresh.clear()


class TrackedRun:
    """What one run used; its rows, which its own account holds too, are added up when somebody asks."""

    __slots__ = ("_rows", "_tally")

    def __init__(self, state: AccountState = NOTHING_YET) -> None:
        self._tally: Tally | None = None if state is NOTHING_YET else Tally(state)
        self._rows: list[CostRecord] = []

    @property
    def tally(self) -> Tally:
        """Return the sums of everything so far."""
        return self._added_up()

    def add_record(self, record: CostRecord) -> None:
        """Add an attempt."""
        self._rows.append(record)
        if len(self._rows) >= _KEPT_APART:
            self._added_up()

    def _added_up(self) -> Tally:
        tally = self._tally
        if tally is None:
            tally = self._tally = Tally()
        if self._rows:
            tally.add_records(self._rows)
            self._rows.clear()
        return tally


class Accounts:
    """The sums of a budget, in all and for each run that is tracked; the owner's lock guards every method."""

    __slots__ = ("_runs", "total")

    def __init__(self, state: AccountState) -> None:
        self.total = Tally(state)
        self._runs: dict[RunKey, TrackedRun] = {}

    def settle(self, run: RunKey, record: CostRecord) -> None:
        """Count an attempt."""
        self.total.add_record(record)
        if record.accepted and record.cost is not None:
            self.total.note(record.cost)
        mine = self._runs.get(run)
        if mine is not None:
            mine.add_record(record)

    def add(self, run: RunKey | None, usage: Usage, cost: Decimal | None) -> None:
        """Count a charge that is a call of its own."""
        self.total.add(usage, cost)
        if cost is not None:
            self.total.note(cost)
        if run in self._runs:
            self._runs[run].tally.add(usage, cost)

    def state(self, run: RunKey) -> AccountState:
        """Return what a tracked run used."""
        mine = self._runs.get(run)
        return NOTHING_YET if mine is None else mine.tally.state()

    def track(self, run: RunKey) -> None:
        """Keep an account of a run from now on; one that is kept already stays."""
        if run not in self._runs:
            self._runs[run] = TrackedRun()

    def restore(self, run: RunKey, state: AccountState) -> None:
        """Count what a checkpoint says that a run used, unless that version of it is counted already."""
        mine = self._runs.get(run)
        if mine is None or mine.tally.version < state.version:
            self.total.replace(NOTHING_YET if mine is None else mine.tally.state(), state)
            self._runs[run] = TrackedRun(state)

    def forget(self, run: RunKey) -> None:
        """Drop a run's account; the total stays."""
        self._runs.pop(run, None)

    def __len__(self) -> int:
        return len(self._runs)


class RunAccount:
    """The priced rows of a run and their sums; a child's rows are also its parents'.

    Also remembers, for the next bound, how long answers were and how much the conversation weighed. `behind` says
    that it was restored from before its open sub-agents ran, whose stored sums have to be made up for.
    """

    __slots__ = ("_counted", "_estimate", "_output", "_outputs", "_tally", "_tools", "behind", "parent", "records")

    def __init__(self, parent: RunAccount | None = None, state: AccountState = NOTHING_YET) -> None:
        self.parent = parent
        self.behind = False
        self.records: list[CostRecord] = []
        self._tally: Tally | None = None if state is NOTHING_YET else Tally(state)
        self._counted = 0  # rows that are in the tally
        self._outputs: dict[str, tuple[list[int], list[int]]] | None = None  # the latest, and the same in order
        self._estimate: tuple[int, Message, int] | None = None
        self._tools: tuple[tuple[ToolSpec, ...], int] = _NO_TOOLS
        self._output: tuple[OutputSpec, int] | None = None

    @property
    def tally(self) -> Tally:
        """Return the sums, brought up to the last row."""
        tally = self._tally
        if tally is None:
            tally = self._tally = Tally()
        if self._counted < len(self.records):
            tally.add_records(self.records[self._counted :])
            self._counted = len(self.records)
        return tally

    @property
    def cost(self) -> Decimal | None:
        """Return dollars spent, None when a part is unpriced."""
        tally = self.tally
        return None if tally.unpriced else tally.spent

    def add(self, record: CostRecord) -> None:
        """Add a row here and in every parent."""
        self.records.append(record)
        parent = self.parent
        while parent is not None:
            parent.records.append(record)
            parent = parent.parent
        if self._outputs is not None:
            self._remember_output(self._outputs, record)

    def likely_output(self, model: str) -> int | None:
        """Return the 95th percentile of this run's answers of that model in tokens, None before the first."""
        outputs = self._outputs
        if outputs is None:
            outputs = self._outputs = {}
            for record in self.records:
                self._remember_output(outputs, record)
        kept = outputs.get(model)
        if kept is None:
            return None
        return kept[1][min(len(kept[1]) - 1, int(len(kept[1]) * 0.95))]

    def estimate_input(self, request: ChatRequest) -> int:
        """Return the tokens the request will likely be, weighing only what is new since the last one."""
        messages = request.messages
        known = 0
        start = 0
        if self._estimate is not None:
            count, last, tokens = self._estimate
            if len(messages) >= count and messages[count - 1] is last:
                start, known = count, tokens
        for message in messages[start:]:
            known += message_tokens(message)
        if messages:
            self._estimate = (len(messages), messages[-1], known)
        if request.tools is not self._tools[0]:
            self._tools = (request.tools, sum(spec_tokens(spec) for spec in request.tools))
        if request.output is not None:
            known += self._output_tokens(request.output)
        if request.settings.extra:
            known += settings_tokens(request.settings)
        return known + self._tools[1]

    def _output_tokens(self, output: OutputSpec) -> int:
        if self._output is None or output is not self._output[0]:
            self._output = (output, output_tokens(output))
        return self._output[1]

    @staticmethod
    def _remember_output(outputs: dict[str, tuple[list[int], list[int]]], record: CostRecord) -> None:
        tokens = record.usage.output_tokens
        if tokens is None or not record.accepted:
            return
        latest, ordered = outputs.setdefault(record.model, ([], []))
        latest.append(tokens)
        insort(ordered, tokens)
        if len(latest) > _OUTPUTS_KEPT:
            del ordered[bisect_left(ordered, latest.pop(0))]
