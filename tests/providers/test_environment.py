"""Proxies and certificates from the environment, with a real proxy and real TLS on loopback."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from agentkit import Binding, CallRuntime, RetryPolicy, Timeouts
from agentkit.errors import ConfigurationError, ProviderError, StreamBroken
from agentkit.providers.transports.environment import proxy_for
from agentkit.testing import ByteServer, LoopbackServer, Turn
from agentkit.testing.bytes_server import read_request
from agentkit.testing.turns import write_turn

ONCE = RetryPolicy(max_attempts=1)
OK = Turn(text="It is forty two.")
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        if name.endswith("PROXY"):
            monkeypatch.delenv(name.lower(), raising=False)


async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request of a connection with the same turn."""
    body = b"".join(write_turn(OK, "chat"))
    while True:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body))
        writer.write(body)


class Proxy:
    """A proxy that takes plain requests and CONNECT, and leads both to one server whatever host was named."""

    def __init__(self, port: int, refuse: bytes = b"") -> None:
        self.port = port
        self.refuse = refuse
        self.heads: list[str] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        if self.refuse:
            writer.write(b"HTTP/1.1 " + self.refuse + b"\r\ncontent-length: 0\r\n\r\n")
            return
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            if head.startswith("CONNECT"):
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                back.write(head.encode())
            await asyncio.wait(
                [asyncio.ensure_future(pipe(reader, back)), asyncio.ensure_future(pipe(there, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            back.close()


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.CancelledError):
        while data := await reader.read(1 << 16):
            writer.write(data)


async def ask(url: str) -> str:
    binding = Binding("openai:m", base_url=url, api_key="key-of-the-model", price="1/1")
    async with CallRuntime(retry=ONCE) as calls:
        first = (await calls.ask(binding, "hi")).value
        assert (await calls.ask(binding, "hi")).value == first
        return first


def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> ssl.SSLContext:
    """Make a private authority known through SSL_CERT_FILE, and return a server's side of it."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(*names).configure_cert(context)
    return context


async def test_a_private_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose certificate SSL_CERT_FILE vouches for is believed."""
    tls = authority(tmp_path, monkeypatch, "127.0.0.1")
    async with ByteServer(answers, tls=tls) as server:
        assert await ask(server.url) == OK.text
        assert server.opened == 1


async def test_a_directory_of_authorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SSL_CERT_DIR names hashed certificates, as OpenSSL wants them."""
    tls = authority(tmp_path, monkeypatch, "127.0.0.1")
    monkeypatch.delenv("SSL_CERT_FILE")
    command = ["openssl", "x509", "-hash", "-noout", "-in", str(tmp_path / "ca.pem")]
    digest = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    (tmp_path / "ca.pem").rename(tmp_path / f"{digest}.0")
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    async with ByteServer(answers, tls=tls) as server:
        assert await ask(server.url) == OK.text


@pytest.mark.parametrize("case", ["unknown authority", "other host"])
async def test_a_wrong_certificate_is_final(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that proves nothing ends the call at once, before anything is sent, with what to do."""
    tls = authority(tmp_path, monkeypatch, "127.0.0.1" if case == "unknown authority" else "other.test")
    if case == "unknown authority":
        monkeypatch.delenv("SSL_CERT_FILE")
    async with ByteServer(answers, tls=tls) as server:
        binding = Binding("openai:m", base_url=server.url, api_key="k", price="1/1")
        async with CallRuntime(retry=RetryPolicy(max_attempts=4, base_delay=0, max_delay=0)) as calls:
            with pytest.raises(StreamBroken, match="SSL_CERT_FILE") as raised:
                await calls.ask(binding, "hi")
        assert server.opened <= 1
    assert (raised.value.retryable, raised.value.accepted) == (False, False)


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
async def test_certificates_that_are_not_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path to nothing is said, where OpenSSL would trust nobody without a word."""
    monkeypatch.setenv(name, "/nowhere/at/all")
    with pytest.raises(ConfigurationError, match=name):
        await ask("https://127.0.0.1:9/v1")


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_plain_proxy(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain request goes to the proxy with the whole address and the proxy's own credentials."""
    async with LoopbackServer([OK]) as server:
        proxy = Proxy(int(server.origin.rpartition(":")[2]))
        async with ByteServer(proxy.talk) as listening:
            monkeypatch.setenv(variable, f"http://user:pass-of-proxy@127.0.0.1:{listening.port}")
            assert await ask("http://model.test/v1") == OK.text
    assert proxy.heads[0].startswith("POST http://model.test/v1/chat/completions HTTP/1.1")
    told = base64.b64encode(b"user:pass-of-proxy").decode()
    assert f"proxy-authorization: Basic {told}".lower() in proxy.heads[0].lower()


async def test_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An https request goes through CONNECT; the proxy gets its credentials and never the key."""
    tls = authority(tmp_path, monkeypatch, "model.test")
    async with ByteServer(answers, tls=tls) as server:
        proxy = Proxy(server.port)
        async with ByteServer(proxy.talk) as listening:
            monkeypatch.setenv("HTTPS_PROXY", f"user:pass-of-proxy@127.0.0.1:{listening.port}")
            assert await ask("https://model.test/v1") == OK.text
    assert len(proxy.heads) == 1
    assert proxy.heads[0].startswith("CONNECT model.test:443 HTTP/1.1")
    assert "proxy-authorization: basic" in proxy.heads[0].lower()
    assert "key-of-the-model" not in proxy.heads[0]


@pytest.mark.parametrize(
    ("rule", "direct"),
    [
        ("127.0.0.1", True),
        ("*", True),
        ("other.test, 127.0.0.1", True),
        ("127.0.0.1:1", False),
        ("other.test", False),
        ("", False),
    ],
)
def test_hosts_without_proxy(rule: str, direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_PROXY names hosts, domains or everything, also with a port."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:3128")
    monkeypatch.setenv("NO_PROXY", rule)
    assert (proxy_for("http://127.0.0.1:8000/v1") is None) is direct


def test_domains_without_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A domain in NO_PROXY covers its hosts, and no other that ends alike."""
    monkeypatch.setenv("HTTPS_PROXY", "proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", "corp.test,.dotted.test")
    assert proxy_for("https://llm.corp.test/v1") is None
    assert proxy_for("https://llm.dotted.test/v1") is None
    assert proxy_for("https://notcorp.test/v1") == "http://proxy.test:3128"
    assert proxy_for("http://plain.test/v1") is None


def test_a_proxy_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SOCKS proxy is refused with the ways out, and without its credentials."""
    monkeypatch.setenv("ALL_PROXY", "socks5://user:pass-of-proxy@127.0.0.1:1080")
    with pytest.raises(ConfigurationError, match="socks5") as raised:
        proxy_for("https://api.test/v1")
    assert "pass-of-proxy" not in str(raised.value)


@pytest.mark.parametrize(
    ("said", "scheme", "retryable"),
    [(b"407 Who are you", "https", False), (b"403 No", "https", False), (b"502 Not there", "https", True)],
)
async def test_a_proxy_that_refuses(said: bytes, scheme: str, retryable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a proxy refuses was never accepted; a refusal for good is not tried again, and shows no credentials."""
    proxy = Proxy(9, refuse=said)
    async with ByteServer(proxy.talk) as listening:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:pass-of-proxy@127.0.0.1:{listening.port}")
        with pytest.raises(StreamBroken, match=said[:3].decode()) as raised:
            await ask(f"{scheme}://model.test/v1")
    assert (raised.value.retryable, raised.value.accepted) == (retryable, False)
    assert "pass-of-proxy" not in f"{raised.value!r} {vars(raised.value)}"


async def test_a_proxy_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that never answers CONNECT is a connection that does not come about within its limit."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass

    async with ByteServer(silent) as listening:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{listening.port}")
        limits = Timeouts(connect=0.2)
        binding = Binding("openai:m", base_url="https://model.test/v1", api_key="k", price="1/1", timeouts=limits)
        async with CallRuntime(retry=ONCE) as calls:
            with pytest.raises(StreamBroken, match=r"connect limit of 0\.2 s") as raised:
                await asyncio.wait_for(calls.ask(binding, "hi"), 20)
        await asyncio.wait_for(listening.until(over=1), 20)
    assert raised.value.accepted is False


async def test_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy nobody answers at is no connection, and its credentials stay hidden."""
    monkeypatch.setenv("HTTP_PROXY", "http://user:pass-of-proxy@127.0.0.1:9")
    with pytest.raises(StreamBroken, match="No connection") as raised:
        await ask("http://model.test/v1")
    assert raised.value.accepted is False
    assert "pass-of-proxy" not in f"{raised.value!r} {vars(raised.value)}"


async def test_a_proxy_address_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy address that cannot be read is said without what is secret in it."""
    monkeypatch.setenv("HTTP_PROXY", "http://user:pass-of-proxy@127.0.0.1:port")
    with pytest.raises((ConfigurationError, StreamBroken)) as raised:
        await ask("http://model.test/v1")
    assert "pass-of-proxy" not in f"{raised.value!r} {vars(raised.value)}"


async def test_a_proxy_set_later_counts_for_new_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is read when a runtime first uses a binding, and not again by that runtime."""
    async with LoopbackServer([OK]) as server:
        proxy = Proxy(int(server.origin.rpartition(":")[2]))
        binding = Binding("openai:m", base_url=server.url, api_key="k", price="1/1")
        async with ByteServer(proxy.talk) as listening:
            async with CallRuntime() as calls:
                await calls.ask(binding, "hi")
                monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{listening.port}")
                await calls.ask(binding, "hi")
                assert not proxy.heads
            async with CallRuntime() as calls:
                await calls.ask(binding, "hi")
    assert len(proxy.heads) == 1


async def test_a_plain_proxy_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain proxy that asks who is there is a final error, not an empty answer."""
    proxy = Proxy(9, refuse=b"407 Who are you")
    async with ByteServer(proxy.talk) as listening:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{listening.port}")
        with pytest.raises(ProviderError, match="407") as raised:
            await ask("http://model.test/v1")
    assert not raised.value.retryable


@pytest.mark.parametrize("private", [False, True])
def test_certificates_are_loaded_once_a_process(private: bool, tmp_path: Path) -> None:
    """After the first runtime ten more, on ten loops, load no certificates, the system's or private ones."""
    code = """
import asyncio, ssl
loads = []
load = ssl.SSLContext.set_default_verify_paths
ssl.SSLContext.set_default_verify_paths = lambda self: (loads.append(1), load(self))
from agentkit import Binding, CallRuntime, RetryPolicy, Timeouts
from agentkit.errors import StreamBroken
async def once(name):
    async with CallRuntime(retry=RetryPolicy(max_attempts=1)) as calls:
        try:
            await calls.ask(Binding("openai:m", base_url=f"https://127.0.0.1:9/{name}", api_key="k", price="1/1"), "hi")
        except StreamBroken:
            pass
asyncio.run(once("first"))
before = len(loads)
for name in range(10):
    asyncio.run(once(name))
print(before > 0, len(loads) - before)
"""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    if private:
        trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        environment["SSL_CERT_FILE"] = str(tmp_path / "ca.pem")
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert ran.stdout.strip() == "True 0"
