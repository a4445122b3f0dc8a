"""Ids that are made once in all processes."""

from __future__ import annotations

import os
from itertools import count

__all__ = ["new_id"]

_COUNTER = count(1)
_process = os.urandom(8).hex()


def new_id() -> str:
    """Return an id that no other process makes up, those that were forked from this one included."""
    return f"{_process}-{next(_COUNTER)}"


def _begin_anew() -> None:
    global _process  # noqa: PLW0603
    _process = os.urandom(8).hex()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_begin_anew)
