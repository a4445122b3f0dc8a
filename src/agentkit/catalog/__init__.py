"""What is known of models, as data: prices and capabilities. Files are read on first use, nothing from the network."""

from agentkit.catalog.capabilities import DEFAULT_CAPABILITIES, Capabilities, CapabilityTable
from agentkit.catalog.prices import DEFAULT_PRICES, PriceRow, PriceTable, family
from agentkit.catalog.rates import FREE, Price, bound, cost, parse_price
from agentkit.catalog.requirements import least_tokens, missing_capability, serving_routes

__all__ = [
    "DEFAULT_CAPABILITIES",
    "DEFAULT_PRICES",
    "FREE",
    "Capabilities",
    "CapabilityTable",
    "Price",
    "PriceRow",
    "PriceTable",
    "bound",
    "cost",
    "family",
    "least_tokens",
    "missing_capability",
    "parse_price",
    "serving_routes",
]
