"""What the environment says of the way to a server: proxies and certificates."""

from __future__ import annotations

import os
import ssl
import urllib.request
from functools import cache
from urllib.parse import urlsplit

from agentkit.errors import ConfigurationError

__all__ = ["proxy_for", "tls_context"]

_SCHEMES = ("http", "https")


def proxy_for(url: str) -> str | None:
    """Return the proxy for this URL: HTTP_PROXY or HTTPS_PROXY by its scheme, else ALL_PROXY, less NO_PROXY.

    On macOS and Windows the system's settings count where no variable is set. Raises ConfigurationError for a proxy
    that speaks something else than HTTP.
    """
    parts = urlsplit(url)
    if not parts.hostname or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = urllib.request.getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found:
        return None
    proxy = found if "://" in found else f"http://{found}"
    scheme = urlsplit(proxy).scheme
    if scheme not in _SCHEMES:
        raise ConfigurationError(
            f"The environment names a {scheme} proxy for {parts.scheme}:// addresses; only http and https proxies are "
            "spoken here. Name one, put the server's host into NO_PROXY, or pass an httpx client with that proxy as "
            "client=."
        )
    return proxy


def tls_context() -> ssl.SSLContext | bool:
    """Return the certificates of SSL_CERT_FILE and SSL_CERT_DIR, loaded once, or True for those of the system.

    The system's are loaded when aiohttp is imported, and not again. Raises ConfigurationError for a path that is
    not there, which OpenSSL would pass over.
    """
    file, folder = os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", "")
    return _loaded(file, folder) if file or folder else True


@cache
def _loaded(file: str, folder: str) -> ssl.SSLContext:
    if file and not os.access(file, os.R_OK):
        raise ConfigurationError(f"SSL_CERT_FILE={file!r} is no file that can be read; name one with certificates.")
    if folder and not any(os.path.isdir(path) for path in folder.split(os.pathsep)):  # noqa: PTH112
        raise ConfigurationError(f"SSL_CERT_DIR={folder!r} is no directory; name one with hashed certificates.")
    return ssl.create_default_context()
