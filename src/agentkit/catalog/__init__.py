"""What is known of models, as data: prices and capabilities. Files are read on first use, nothing from the network."""

from agentkit.catalog.assess import Assessment, CostLine, GroupBill, assess, bill_group
from agentkit.catalog.capabilities import DEFAULT_CAPABILITIES, Capabilities, CapabilityTable
from agentkit.catalog.prices import DEFAULT_PRICES, Explanation, PriceTable, family
from agentkit.catalog.rates import FREE, Price, bound, cost, parse_price
from agentkit.catalog.reconcile import Reconciliation, ReportedCost, divergences, reconcile, reported_cost
from agentkit.catalog.requirements import least_tokens, missing_capability
from agentkit.catalog.rules import PriceRow
from agentkit.catalog.tables import load_prices

__all__ = [
    "DEFAULT_CAPABILITIES",
    "DEFAULT_PRICES",
    "FREE",
    "Assessment",
    "Capabilities",
    "CapabilityTable",
    "CostLine",
    "Explanation",
    "GroupBill",
    "Price",
    "PriceRow",
    "PriceTable",
    "Reconciliation",
    "ReportedCost",
    "assess",
    "bill_group",
    "bound",
    "cost",
    "divergences",
    "family",
    "least_tokens",
    "missing_capability",
    "load_prices",
    "parse_price",
    "reconcile",
    "reported_cost",
]
