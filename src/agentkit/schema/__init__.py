"""Python types and JSON Schema, in both directions. pydantic and jsonschema-rs load on first use."""

from agentkit.schema.json_schema import check_schema, schema_name
from agentkit.schema.output import OutputType, output_type
from agentkit.schema.partial import partial_json
from agentkit.schema.signature import ToolSignature
from agentkit.schema.strict import strict_schema

__all__ = [
    "OutputType",
    "ToolSignature",
    "check_schema",
    "output_type",
    "partial_json",
    "schema_name",
    "strict_schema",
]
