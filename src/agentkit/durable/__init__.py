"""The life of a run: checkpoints as data, a slot with one writer, resume."""

from agentkit.durable.checkpoint import RunState, Step
from agentkit.durable.ledger import PatientLedger
from agentkit.durable.run_slot import CHECKPOINT_KIND, RunSlot, to_decisions

__all__ = ["CHECKPOINT_KIND", "PatientLedger", "RunSlot", "RunState", "Step", "to_decisions"]
