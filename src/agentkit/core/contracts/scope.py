"""Who a run is for."""

from __future__ import annotations

from msgspec import Struct

from agentkit.core.contracts.text import clean_text
from agentkit.errors import ConfigurationError

__all__ = ["Scope"]


class Scope(Struct, frozen=True):
    """The tenant a run belongs to, and optionally its user and session.

    Raises ConfigurationError for an empty or non-text part, or one that no store takes as it is: an unset tenant must
    never become a shared one, nor two tenants one.
    """

    tenant: str
    user: str | None = None
    session: str | None = None

    def __post_init__(self) -> None:
        for name in ("tenant", "user", "session"):
            value = getattr(self, name)
            if value is None and name != "tenant":
                continue
            if not isinstance(value, str) or not value.strip():
                raise ConfigurationError(f"Scope({name}={value!r}): pass a non-empty text, such as 'acme'.")
            if not value.isprintable() and clean_text(value) != value:
                raise ConfigurationError(f"Scope({name}={value!r}): no store takes its NULs or halves of characters.")

    def key(self) -> str:
        """Return one unambiguous text for the whole scope; two different scopes never share one."""
        tenant = f"t{len(self.tenant)}:{self.tenant}"
        if self.user is self.session is None:
            return tenant
        parts = [tenant]
        if self.user is not None:
            parts.append(f"u{len(self.user)}:{self.user}")
        if self.session is not None:
            parts.append(f"s{len(self.session)}:{self.session}")
        return "|".join(parts)
