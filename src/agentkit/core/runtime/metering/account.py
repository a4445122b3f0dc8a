"""What a run has used so far, its sub-agents included."""

from __future__ import annotations

from bisect import bisect_left, insort
from decimal import Decimal

from msgspec import Struct

from agentkit.core.contracts import (
    ZERO,
    ChatRequest,
    CostRecord,
    Message,
    ToolSpec,
    Usage,
    add_money,
    subtract_money,
    total_usage,
)
from agentkit.core.runtime.metering.estimate import message_tokens, spec_tokens

__all__ = ["AccountState", "RunAccount", "Tally"]

_OUTPUTS_KEPT = 64
_KEPT_APART = 64  # usages that are summed together, in one pass over each field


_NOTHING = Usage()


class AccountState(Struct, frozen=True):
    """A run's account as a checkpoint stores it; `spent` is dollars, `version` counts its charges."""

    spent: Decimal = ZERO
    unpriced: int = 0
    calls: int = 0
    usage: Usage = _NOTHING
    version: int = 0


class Tally:
    """Running sums of money, calls and tokens; not thread-safe by itself."""

    __slots__ = ("_added", "_usage", "calls", "spent", "unpriced", "version")

    def __init__(self, state: AccountState = AccountState()) -> None:  # noqa: B008
        self.spent = state.spent
        self.unpriced = state.unpriced
        self.calls = state.calls
        self.version = state.version
        self._usage = state.usage
        self._added: list[Usage] | None = None

    @property
    def usage(self) -> Usage:
        """Return the tokens of everything added; summed when somebody asks."""
        if self._added:
            self._sum_up(self._added)
        return self._usage

    def _sum_up(self, added: list[Usage]) -> None:
        self._usage = total_usage(self._usage, added)
        added.clear()

    def add(self, usage: Usage, cost: Decimal | None, *, calls: int) -> None:
        """Add one attempt; a cost of None makes the sum a lower bound for good."""
        if self._added is not None:
            self._added.append(usage)
            if len(self._added) >= _KEPT_APART:
                self._sum_up(self._added)
        elif self._usage is _NOTHING:
            self._usage = usage
        else:
            self._added = [usage]
        self.calls += calls
        self.version += 1
        if cost is None:
            self.unpriced += 1
        elif cost:
            self.spent = add_money(self.spent, cost) if self.spent else cost

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


class RunAccount:
    """The priced rows of a run and their sums; a child's rows are also its parents'.

    Also remembers, for the next bound, how long answers were and how much the conversation weighed. `behind` says
    that it was restored from before its open sub-agents ran, whose stored sums have to be made up for.
    """

    __slots__ = ("_estimate", "_outputs", "_tools", "behind", "parent", "records", "tally")

    def __init__(self, parent: RunAccount | None = None, state: AccountState = AccountState()) -> None:  # noqa: B008
        self.parent = parent
        self.behind = False
        self.tally = Tally(state)
        self.records: list[CostRecord] = []
        self._outputs: dict[str, tuple[list[int], list[int]]] | None = None  # the latest, and the same in order
        self._estimate: tuple[int, Message, int] | None = None
        self._tools: tuple[tuple[ToolSpec, ...], int] = ((), 0)

    @property
    def cost(self) -> Decimal | None:
        """Return dollars spent, None when a part is unpriced."""
        return None if self.tally.unpriced else self.tally.spent

    def add(self, record: CostRecord) -> None:
        """Add a row here and in every parent."""
        calls = 1 if record.accepted else 0
        account: RunAccount | None = self
        while account is not None:
            account.records.append(record)
            account.tally.add(record.usage, record.cost, calls=calls)
            account = account.parent
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
        return known + self._tools[1]

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
