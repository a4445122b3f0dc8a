"""Python types and JSON Schema, in both directions. pydantic and jsonschema-rs load on first use."""

from agentkit.schema.adapt import Adapted, adapt_schema
from agentkit.schema.dialect import DIALECTS, Dialect, SchemaDialect
from agentkit.schema.json_schema import check_schema, schema_name
from agentkit.schema.output import OutputType, output_type
from agentkit.schema.partial import partial_json
from agentkit.schema.references import Definitions
from agentkit.schema.signature import ToolSignature

__all__ = [
    "DIALECTS",
    "Adapted",
    "Definitions",
    "Dialect",
    "OutputType",
    "SchemaDialect",
    "ToolSignature",
    "adapt_schema",
    "check_schema",
    "output_type",
    "partial_json",
    "schema_name",
]
