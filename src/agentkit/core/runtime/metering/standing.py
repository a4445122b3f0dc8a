"""Where a budget stands: its ceilings, and what was spent under them."""

from __future__ import annotations

import threading
from decimal import Decimal

from agentkit.core.contracts import ZERO, Charge, Money, Usage, add_money, subtract_money, to_cents
from agentkit.core.runtime.checks import whole
from agentkit.core.runtime.clock import Clock
from agentkit.core.runtime.metering.account import Accounts, AccountState
from agentkit.core.runtime.metering.admission import WaitingRoom
from agentkit.core.runtime.metering.forecast import Forecast, forecast_of
from agentkit.core.runtime.metering.limits import Ceilings, Refusal, to_dollars
from agentkit.errors import ConfigurationError

__all__ = ["BudgetStanding"]


class BudgetStanding:
    """The half of a Budget that tells: ceilings, sums, what is left, and the accounts of runs."""

    shared: str | None = None

    def __init__(self, limits: Ceilings, mode: str, state: AccountState, clock: Clock) -> None:
        self.limits = limits
        self.mode = mode
        self._clock = clock
        self._lock = threading.RLock()
        self._accounts = Accounts(state)
        self._room = WaitingRoom()
        self._uncertain = ZERO
        self._started: float | None = None
        self.unlimited = limits.unlimited  # what a layer reads before each call: nobody has to be asked

    @property
    def max_cost_usd(self) -> Decimal | None:
        """Return the ceiling in dollars; assigning another one counts for the calls to come and wakes waiters."""
        return self.limits.cost

    @max_cost_usd.setter
    def max_cost_usd(self, value: Money | None) -> None:
        if value is None and self.shared is not None:
            raise ConfigurationError(f"max_cost_usd=None: the ceiling shared as {self.shared!r} needs dollars.")
        with self._lock:
            self.limits.cost = None if value is None else to_dollars(value, "max_cost_usd")
            self._changed()

    @property
    def max_calls(self) -> int | None:
        """Return the most logical calls; assigning another number counts for the calls to come."""
        return self.limits.calls

    @max_calls.setter
    def max_calls(self, value: int | None) -> None:
        with self._lock:
            self.limits.calls = None if value is None else whole("Budget", "max_calls", value, 0)
            self._changed()

    @property
    def max_depth(self) -> int:
        """Return how deep sub-agents may nest; 0 is the root alone."""
        return self.limits.depth

    @property
    def max_concurrency(self) -> int:
        """Return the fan-out slots of each depth."""
        return self.limits.concurrency

    @property
    def max_width(self) -> int | None:
        """Return how many agents one fan-out may start, None for any number."""
        return self.limits.width

    @property
    def calls(self) -> int:
        """Return the logical calls that were accepted."""
        return self._accounts.total.calls

    @property
    def usage(self) -> Usage:
        """Return the tokens of every attempt so far."""
        with self._lock:
            return self._accounts.total.usage

    @property
    def cost_complete(self) -> bool:
        """Return whether every attempt so far had a known price and usage."""
        return not self._accounts.total.unpriced

    @property
    def spent_usd(self) -> float | None:
        """Return dollars spent as a float, None while a part is unpriced."""
        return float(self.spent()) if self.cost_complete else None

    def spent(self) -> Decimal:
        """Return dollars spent, exactly; a lower bound while `cost_complete` is False."""
        return self._accounts.total.spent

    def spent_cents(self) -> int:
        """Return whole cents spent, rounded half up once, here."""
        return to_cents(self.spent())

    def ceiling(self) -> Decimal | None:
        """Return the ceiling in dollars, None without one."""
        return self.limits.cost

    def remaining(self) -> Decimal | None:
        """Return dollars left, never below zero; None without a ceiling. Reservations in flight are not subtracted."""
        if self.limits.cost is None:
            return None
        return max(ZERO, subtract_money(self.limits.cost, self._committed()))

    def remaining_usd(self) -> float | None:
        """Return `remaining()` as a float."""
        left = self.remaining()
        return None if left is None else float(left)

    def held(self) -> Decimal:
        """Return dollars reserved by attempts in flight."""
        return self._room.held.cost

    def uncertain(self) -> Decimal:
        """Return dollars that stay taken for accepted calls whose price, or a part of it, is unknown."""
        return self._uncertain

    def exhausted(self) -> bool:
        """Return whether a ceiling was crossed; landing on it is not crossing."""
        with self._lock:
            return self._crossed() is not None

    def verdict(self) -> Charge:
        """Return where the budget stands, without reserving anything."""
        with self._lock:
            return self._charge(self._crossed())

    def forecast(self) -> Forecast:
        """Return how long what is left will last at the pace so far."""
        with self._lock:
            return forecast_of(self.limits, self._accounts.total, self.remaining(), self._elapsed())

    def account(self, tenant: str, run_id: str) -> AccountState:
        """Return what this tenant's run used since `track` or `restore`, as a checkpoint stores it."""
        with self._lock:
            return self._accounts.state((tenant, run_id))

    def restore(self, tenant: str, run_id: str, state: AccountState) -> None:
        """Add what a checkpoint says this run used, unless this budget has already seen that version of it."""
        with self._lock:
            self._accounts.restore((tenant, run_id), state)

    def track(self, tenant: str, run_id: str) -> None:
        """Keep an account of what this run uses from now on, until `forget`; a run that is kept already stays."""
        with self._lock:
            self._accounts.track((tenant, run_id))

    def forget(self, tenant: str, run_id: str) -> None:
        """Drop the account of a finished run; the totals stay."""
        with self._lock:
            self._accounts.forget((tenant, run_id))

    def _changed(self) -> None:
        self.unlimited = self.limits.unlimited
        self._room.wake()

    def _committed(self) -> Decimal:
        spent = self._accounts.total.spent
        return add_money(spent, self._uncertain) if self._uncertain else spent

    def _crossed(self) -> Refusal | None:
        if self.mode == "observe":
            return None
        elapsed = 0.0 if self.limits.duration is None else self._elapsed()
        return self.limits.crossed(self._accounts.total, self._committed(), elapsed)

    def _elapsed(self) -> float:
        return 0.0 if self._started is None else self._clock.now() - self._started

    def _charge(self, refusal: Refusal | None) -> Charge:
        total = self._accounts.total
        return Charge(
            refusal is None,
            "" if refusal is None else refusal.reason,
            total.spent,
            self.remaining(),
            total.calls,
            not total.unpriced,
            total.usage,
            "" if refusal is None else refusal.axis,
        )
