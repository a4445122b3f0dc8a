"""Whose server an address is, which key goes there and how, and what of it must never show."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from agentkit.errors import ConfigurationError
from agentkit.providers.profiles import Profile
from agentkit.providers.transports.port import Headers

__all__ = ["headers_of", "is_own", "key_of", "secrets_of"]

_NO_SECRETS = frozenset({"api-version"})  # parameters of an address that may show in an error
_SECRET_HEADERS = ("auth", "key", "token", "secret", "cookie", "password")
_USER_AGENT = "agentkit"


def secrets_of(profile: Profile, api_key: str | None, client: object | None, query: str) -> list[str]:
    """Return what must not show in an error: keys, what stands in a query, and what headers authenticate with."""
    headers = getattr(client, "headers", None)
    given = [*profile.headers, *(headers.items() if isinstance(headers, Mapping) else ())]
    words = [value for name, value in given if any(part in name.lower() for part in _SECRET_HEADERS)]
    keys = [api_key, getattr(client, "api_key", None), *words, *(word.rpartition(" ")[2] for word in words)]
    asked = [value for name, value in parse_qsl(query) if name.lower() not in _NO_SECRETS]
    return [key for key in keys if isinstance(key, str)] + asked


def key_of(profile: Profile, api_key: str | None, *, own: bool) -> str | None:
    """Return the key for a server: the given one, else that of the profile's variables where it is the `own` server's.

    Raises ConfigurationError for a key that none can be, and naming the variables when a key is needed.
    """
    if api_key is not None:
        if not api_key.strip() or not api_key.isascii() or any(sign.isspace() for sign in api_key.strip()):
            raise ConfigurationError(f"api_key for {profile.name} is empty or holds characters that no key has.")
        return api_key.strip()
    if not own or not profile.key_variables:
        return None
    for name in profile.key_variables:
        if found := os.environ.get(name, "").strip():
            return found
    names = " or ".join(profile.key_variables)
    raise ConfigurationError(f"No key for {profile.name}: set the environment variable {names}, or pass api_key=.")


def headers_of(profile: Profile, key: str | None) -> Headers:
    """Return the headers of every request to a server."""
    headers = Headers(profile.headers)
    headers["content-type"] = "application/json"
    headers["accept"] = "text/event-stream, application/json"
    headers["accept-encoding"] = "identity"
    headers["user-agent"] = _USER_AGENT
    if not profile.keeps_connections:
        headers["connection"] = "close"
    if key is not None:
        headers[profile.key_header] = f"Bearer {key}" if profile.key_header == "authorization" else key
    return headers


def is_own(profile: Profile, url: str) -> bool:
    """Return whether the address is the provider's, whose key may be sent there and whose prices apply."""
    scheme, name, _ = _host(url)
    if scheme == "https" and any((name or "").endswith(ending) for ending in profile.hosts):
        return True
    return bool(profile.base_url) and _host(url) == _host(profile.base_url)


def _host(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
