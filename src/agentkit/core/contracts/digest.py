"""What binds a decision to a tool call: the name it is given under, and a hash of tool and arguments."""

from __future__ import annotations

import hashlib
import json

from agentkit.core.contracts.seam import CallKey

__all__ = ["digest", "pending_id"]


def digest(tool: str, arguments: str) -> str:
    """Return a hash of the tool and what its JSON arguments say; spelling, spaces and key order do not matter.

    Text that is no JSON is hashed as it is, apart from every text that is.
    """
    try:
        value = json.loads(arguments or "{}", parse_constant=_refuse)
        canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        kind = "json"
    except (ValueError, RecursionError):
        canonical, kind = arguments, "text"
    payload = json.dumps([tool, kind, canonical], ensure_ascii=True)
    return hashlib.sha256(payload.encode("ascii")).hexdigest()


def pending_id(key: CallKey) -> str:
    """Return the name under which a decision on this call is given."""
    return f"{key.path}:{key.turn}.{key.position}" if key.path else f"{key.turn}.{key.position}"


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
