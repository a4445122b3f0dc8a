"""Python functions as tools, and the toolbox of an agent."""

from agentkit.core.runtime.metering.operation import Bill, metered
from agentkit.tools.result import MAX_BATCH_CHARS, MAX_RESULT_CHARS, fit_batch, render_result
from agentkit.tools.tool import Tool, tool
from agentkit.tools.toolbox import Toolbox

__all__ = [
    "MAX_BATCH_CHARS",
    "MAX_RESULT_CHARS",
    "Bill",
    "Tool",
    "Toolbox",
    "fit_batch",
    "metered",
    "render_result",
    "tool",
]
