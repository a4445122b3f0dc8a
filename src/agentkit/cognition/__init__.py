"""The loops: one call, or a model and its tools; they know the Invoker, toolboxes and durable runs, no provider."""

from agentkit.cognition.execute import execute, resume
from agentkit.cognition.job import Job
from agentkit.cognition.react import DEFAULT_MAX_TURNS, ReAct
from agentkit.cognition.run import Cognition, Run
from agentkit.cognition.run_stream import RunStream
from agentkit.cognition.single import SingleCall

__all__ = ["DEFAULT_MAX_TURNS", "Cognition", "Job", "ReAct", "Run", "RunStream", "SingleCall", "execute", "resume"]
