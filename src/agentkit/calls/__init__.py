"""The calls a host makes: bindings, the runtime with its default layers, `ask` and `run`."""

from agentkit.calls.admission import Acquire
from agentkit.calls.answer import Answer
from agentkit.calls.binding import Binding, Price
from agentkit.calls.entry import job_for, new_run_id, opening
from agentkit.calls.functions import ask, entered, run
from agentkit.calls.runtime import CallRuntime

__all__ = [
    "Acquire",
    "Answer",
    "Binding",
    "CallRuntime",
    "Price",
    "ask",
    "entered",
    "job_for",
    "new_run_id",
    "opening",
    "run",
]
