"""Names of spans, attributes and metrics: OpenTelemetry's GenAI conventions as constants of our own.

Names follow semantic conventions 1.41, which today's backends read, with `cache_write` as in the later genai v0.1.0.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AGENT_NAME",
    "CHAT",
    "CIRCUITS",
    "CIRCUIT_OPENED",
    "CONVERSATION_ID",
    "COST",
    "DURATION",
    "DURATION_BUCKETS",
    "ERRORS",
    "ERROR_TYPE",
    "EXECUTE_TOOL",
    "FALLBACK",
    "FINISH_REASONS",
    "FIRST_CHUNK",
    "INPUT_MESSAGES",
    "INVOKE_AGENT",
    "OPERATION",
    "OUTCOME",
    "OUTPUT_MESSAGES",
    "OUTPUT_TYPE",
    "PATH",
    "PROVIDER",
    "PURPOSE",
    "REQUEST_EFFORT",
    "REQUEST_MAX_TOKENS",
    "REQUEST_MODEL",
    "REQUEST_SEED",
    "REQUEST_STOP",
    "REQUEST_STREAM",
    "REQUEST_TEMPERATURE",
    "REQUEST_TOP_P",
    "RESPONSE_ID",
    "RESPONSE_MODEL",
    "RETRY_ATTEMPT",
    "RUN_ID",
    "TENANT",
    "TIME_TO_FIRST_CHUNK",
    "TOKENS",
    "TOKENS_BUCKETS",
    "TOKENS_KIND",
    "TOOL_ARGUMENTS",
    "TOOL_CALL_ID",
    "TOOL_DURATION",
    "TOOL_NAME",
    "TOOL_OUTCOME",
    "TOOL_RESULT",
    "TOOL_TYPE",
    "USAGE_CACHE_READ",
    "USAGE_CACHE_WRITE",
    "USAGE_ESTIMATED",
    "USAGE_INPUT",
    "USAGE_OUTPUT",
    "USAGE_REASONING",
    "USER",
]

CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
OUTPUT_TYPE: Final = "gen_ai.output.type"
AGENT_NAME: Final = "gen_ai.agent.name"
ERROR_TYPE: Final = "error.type"

REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_STOP: Final = "gen_ai.request.stop_sequences"
REQUEST_SEED: Final = "gen_ai.request.seed"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_EFFORT: Final = "gen_ai.request.reasoning.level"

RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"

USAGE_INPUT: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
USAGE_REASONING: Final = "gen_ai.usage.reasoning.output_tokens"

INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

RUN_ID: Final = "agentkit.run.id"
PATH: Final = "agentkit.run.path"
TENANT: Final = "agentkit.scope.tenant"
USER: Final = "agentkit.scope.user"
PURPOSE: Final = "agentkit.purpose"
COST: Final = "agentkit.cost_usd"
USAGE_ESTIMATED: Final = "agentkit.usage.estimated"
OUTCOME: Final = "agentkit.outcome"
TOOL_OUTCOME: Final = "agentkit.tool.outcome"
RETRY_ATTEMPT: Final = "retry.attempt"
CIRCUIT_OPENED: Final = "circuit.opened"
FALLBACK: Final = "fallback.left"

TOKENS: Final = "gen_ai.client.token.usage"
TOKENS_KIND: Final = "gen_ai.token.type"
DURATION: Final = "gen_ai.client.operation.duration"
TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
ERRORS: Final = "agentkit.client.errors"
CIRCUITS: Final = "agentkit.client.circuits_opened"
TOKENS_BUCKETS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
DURATION_BUCKETS: Final = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
