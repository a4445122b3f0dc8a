"""A model behind HTTP: one server's profile, its protocol, a transport and a key."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from agentkit.catalog import DEFAULT_CAPABILITIES, CapabilityTable
from agentkit.core.contracts import (
    Adjustment,
    Call,
    Capabilities,
    ChatEvent,
    ChatRequest,
    Timeouts,
    ToolMessage,
    ToolSpec,
    WireProtocol,
)
from agentkit.errors import BadRequest, ConfigurationError, ProviderError, StreamBroken
from agentkit.providers.credentials import headers_of, is_own, key_of, secrets_of
from agentkit.providers.exchange import drain, hide, is_stream, read_failure, rest_of
from agentkit.providers.history import Guarded, guard_history
from agentkit.providers.learned import MOST_REFUSALS, Lesson, learn
from agentkit.providers.limits import check_window, output_cap
from agentkit.providers.names import wire_name, with_own_names
from agentkit.providers.profiles import PROFILES, Profile, speaking
from agentkit.providers.schema_tools import SchemaTools
from agentkit.providers.transports.port import HttpResponse, HttpTransport
from agentkit.providers.transports.select import transport_for
from agentkit.providers.transports.session import SessionPool
from agentkit.providers.wire.codecs import CODECS, Writer
from agentkit.providers.wire.error_body import read_error
from agentkit.providers.wire.evidence import Words
from agentkit.providers.wire.failure import redact, request_id_of
from agentkit.providers.wire.fold import Asked, Decoder, with_usage
from agentkit.providers.wire.rate_limits import rate_limit_of

__all__ = ["HttpModel", "build_model"]

_log = logging.getLogger(__name__)
_CLOUDS = ("Azure", "Bedrock", "Vertex", "Foundry", "AWS")


class HttpModel:
    """A model port over HTTP for every model of one server.

    `stream` raises ProviderError kinds, with the request id, the rate-limit headers and the usage that was known;
    ConfigurationError before anything is sent when the conversation cannot be written. Closing the generator or
    cancelling its task releases the connection. `own_server` says whether the address is the provider's own (or a cloud
    variant of it), so that its list prices apply; `weighs` False leaves the limits of its models to the server, which
    other headers may have raised. `aclose` closes what this model opened, never a client it was given.
    """

    def __init__(
        self,
        profile: Profile,
        transport: HttpTransport,
        *,
        key: str | None = None,
        capabilities: CapabilityTable = DEFAULT_CAPABILITIES,
        provider: str = "",
        default_model: str = "",
        query: str = "",
        secrets: Sequence[str] = (),
        own_server: bool = True,
        weighs: bool = True,
    ) -> None:
        self.profile = profile
        self.provider = provider or profile.name
        self.own_server = own_server
        self._weighs = weighs
        self._default_model = default_model
        self._codec = CODECS[profile.protocol]
        self._transport = transport
        versioned = transport.base_url.endswith("/v1")
        self._path = self._codec.path.removeprefix("/v1") if versioned else self._codec.path
        if query:
            self._path += f"?{query}"
        self._capabilities = capabilities
        self._endpoint = transport.base_url
        self._origin = urlsplit(transport.base_url).netloc.rpartition("@")[2] or self.provider
        self._headers = headers_of(profile, key)
        self._secrets = (key or "", *secrets)
        self._words = Words(self._secrets)
        self._writers: dict[str, Writer] = {}
        self._told: set[tuple[str, str]] = set()
        self._profiles: dict[str, Profile] = {}
        self._notes: dict[str, dict[str, Adjustment]] = {}
        self._tools: tuple[ToolSpec, ...] = ()
        self._has_aliases = False
        self._schema_tools = SchemaTools(_Native(self)) if profile.tools == "schema" else None

    def __repr__(self) -> str:
        return f"HttpModel({self.provider!r}, {redact(self._endpoint)!r})"

    def stream(self, call: Call[ChatRequest], /) -> AsyncGenerator[ChatEvent, None]:
        """Send the request and yield its events; the last is ChatEnd."""
        if self._schema_tools is not None:
            return self._schema_tools.stream(call)
        tools = call.request.tools
        if tools is not self._tools:
            self._tools, self._has_aliases = tools, any(wire_name(tool.name) != tool.name for tool in tools)
        events = self._native(call)
        return with_own_names(events, tools) if self._has_aliases else events

    async def aclose(self) -> None:
        """Close the connections this model opened."""
        await self._transport.aclose()

    async def _native(self, call: Call[ChatRequest]) -> AsyncGenerator[ChatEvent, None]:
        provider, model = (
            (self.provider, self._default_model) if call.route is None else (call.route.provider, call.route.model)
        )
        response: HttpResponse | None = None
        decoder: Decoder | None = None
        try:
            known = call.route.capabilities if call.route is not None else self._known(model)
            response, asked = await self._sent(call.request, provider, model, known)
            decoder = self._codec.decoder(asked)
            data = await response.chunk()
            if not is_stream(response, data):
                for event in decoder.whole(await rest_of(response, data)):
                    yield event
                return
            while data:
                for event in decoder.feed(data):
                    yield event
                if decoder.done:
                    break
                data = await response.chunk()
            if decoder.done and not response.at_end:
                await drain(response)
            for event in decoder.end():
                yield event
        except ProviderError as error:
            self._describe(error, provider, model, response, decoder)
            raise
        except RecursionError:
            broken = StreamBroken("The answer is nested too deeply to be read.", accepted=True)
            self._describe(broken, provider, model, response, decoder)
            raise broken from None
        finally:
            if response is not None:
                await response.aclose()

    async def _sent(
        self, request: ChatRequest, provider: str, model: str, known: Capabilities
    ) -> tuple[HttpResponse, Asked]:
        """Return the answer to the request, sent again without each optional field that the server refuses."""
        lost: list[str] = []
        while True:
            profile = self._profile_of(model)
            body, asked = self._written(request, provider, model, known)
            response = await self._transport.post(self._path, self._headers, body)
            if response.status == 200:
                headers = response.headers
                limit = rate_limit_of(headers)
                return response, replace(asked, request_id=request_id_of(headers) or "", rate_limit=limit)
            error, lesson = await self._failed(response, request, profile, body, lost)
            if lesson is None:
                raise error
            if profile is self._profile_of(model):
                self._learn(model, lesson)
                lost.append(lesson.field)
            else:  # another request has learned something while this one was under way
                lost.append("")

    async def _failed(
        self, response: HttpResponse, request: ChatRequest, profile: Profile, body: bytes, lost: list[str]
    ) -> tuple[ProviderError, Lesson | None]:
        """Return the error, and how to do without what it is about; the body, which may quote a key, stays here."""
        try:
            error, told = await read_failure(response)
        finally:
            await response.aclose()
        if not isinstance(error, BadRequest) or len(lost) >= MOST_REFUSALS:
            return error, None
        sent = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        return error, learn(profile, request, sent, read_error(told), lost)

    def _profile_of(self, model: str) -> Profile:
        return self._profiles.get(model, self.profile)

    def _learn(self, model: str, lesson: Lesson) -> None:
        self._profiles[model] = lesson.profile
        self._writers.pop(model, None)
        if lesson.note is not None:
            notes = self._notes.setdefault(model, {})
            notes[lesson.note.what] = lesson.note

    def _known(self, model: str) -> Capabilities:
        """Return what is known of a model that no route tells of."""
        return self._capabilities.find(self.provider, model, listed=self.own_server)

    def _writer(self, model: str, known: Capabilities) -> Writer:
        """Return the model's writer; it puts a schema into the prompt where the model is known to enforce none."""
        writer = self._writers.get(model)
        if writer is None:
            profile = self._profile_of(model)
            if known.structured_output is False and profile.schemas != "prompt":
                profile = replace(profile, schemas="text")
            writer = self._writers[model] = self._codec.writer(profile, self._endpoint, model)
        return writer

    def _written(self, request: ChatRequest, provider: str, model: str, known: Capabilities) -> tuple[bytes, Asked]:
        guarded = guard_history(request.messages)
        messages = guarded.messages
        writer = self._writer(model, known)
        changes = writer.changes
        changes.clear()
        max_tokens, capped = output_cap(request.settings.max_tokens, known, self.profile.max_tokens)
        if not self._weighs and capped is not None:
            max_tokens, capped = request.settings.max_tokens, None
        try:
            body = writer.write(request, messages, max_tokens)
        except ConfigurationError:
            raise
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ConfigurationError(
                f"The request cannot be written as JSON: {error}. Look at settings.extra and schemas."
            ) from None
        if self._weighs:
            check_window(messages, len(body), known, provider, model)
        if capped is not None:
            changes.append(capped)
        if notes := self._notes.get(model):
            asked_for = {"max_tokens": max_tokens is not None, "stream_options": request.stream}
            changes += [note for what, note in notes.items() if asked_for.get(what, True)]
        if changes:
            self._tell(model, changes)
        adjustments = (*guarded.repairs, *changes, *writer.replay.left_out(messages, request.settings.replay))
        return body, self._asked(guarded, request.tools, provider, model, max_tokens, adjustments)

    def _tell(self, model: str, changes: Sequence[Adjustment]) -> None:
        """Log each change once for each model."""
        for change in changes:
            if (model, change.what) not in self._told:
                self._told.add((model, change.what))
                _log.info("%s:%s: %s: %s", self.provider, model, change.what, change.why)

    def _asked(
        self,
        guarded: Guarded,
        tools: tuple[ToolSpec, ...],
        provider: str,
        model: str,
        max_tokens: int | None,
        adjustments: tuple[Adjustment, ...],
    ) -> Asked:
        profile = self.profile
        return Asked(
            provider=provider,
            model=model,
            endpoint=self._endpoint,
            max_tokens=max_tokens,
            taken=guarded.ids,
            tools=tools,
            turn=len(guarded.messages),
            after_tools=isinstance(guarded.messages[-1], ToolMessage),
            echo=profile.echo,
            output_is_rest=profile.output_is_rest,
            think_tags=profile.think_tags,
            report_model=profile.reports_model,
            adjustments=adjustments,
            words=self._words,
        )

    def _describe(
        self,
        error: ProviderError,
        provider: str,
        model: str,
        response: HttpResponse | None,
        decoder: Decoder | None,
    ) -> None:
        error.provider = error.provider or provider
        error.model = error.model or model
        error.message = f"{self._origin}: {error.message}"
        secrets = self._secrets
        if response is not None:
            error.request_id = error.request_id or request_id_of(response.headers)
            secrets = (*secrets, *response.secrets)
        hide(error, *secrets)
        if decoder is not None:
            told = decoder.reported()
            if not error.usage:
                with_usage(error, told.usage)
            error.raw_usage, error.service_tier, error.billing = told.raw, told.service_tier, told.billing
            error.accepted = True if error.accepted is None else error.accepted


class _Native:
    """The model without tools made through a schema; what the schema tools themselves call."""

    def __init__(self, model: HttpModel) -> None:
        self._model = model

    def stream(self, call: Call[ChatRequest], /) -> AsyncGenerator[ChatEvent, None]:
        return self._model._native(call)


def build_model(
    profile: Profile,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    client: object | None = None,
    protocol: WireProtocol | None = None,
    capabilities: CapabilityTable = DEFAULT_CAPABILITIES,
    timeouts: Timeouts | None = None,
    sessions: SessionPool | None = None,
    provider: str = "",
    default_model: str = "",
) -> HttpModel:
    """Return the model of a profile, at `base_url` when it is not the profile's own.

    The key is `api_key`, else the profile's environment variable; that variable is not read for another base_url,
    so a vendor's key never reaches another server. A query of the base_url is added to every request. `client` is an
    httpx, httpx2, openai or anthropic async client or a transport of your own, which stays yours to close; an SDK's
    brings address and key. `protocol` is one of those the server speaks, None its first; nothing is sent in another.
    `timeouts` beat those of the client; without any the client's own hold. `sessions` are the connections of the
    default transport, which several models can share and their maker closes. `provider` and `default_model` name calls
    that bring no route. Raises ConfigurationError naming the missing variable or address, or the protocols there are.
    """
    address, _, query = (base_url or "").partition("?")
    home = dict(profile.base_urls).get(protocol or profile.protocol, profile.base_url)
    transport = transport_for(client, address or None, home, api_key=api_key, timeouts=timeouts, sessions=sessions)
    if not transport.base_url:
        raise ConfigurationError(
            f"{profile.name} has no address of its own; pass base_url={profile.example_url or 'http://host:port/v1'!r}."
        )
    own = is_own(profile, transport.base_url)
    cloud = bool(transport.protocols) and any(name in type(client).__name__ for name in _CLOUDS)
    elsewhere = "" if own else profile.cloud if cloud else profile.elsewhere
    dialect = PROFILES[elsewhere] if elsewhere else profile
    if dialect is not profile:
        dialect = replace(dialect, tools=profile.tools)
    dialect = speaking(dialect, protocol)
    if transport.protocols and dialect.protocol not in transport.protocols:
        raise ConfigurationError(
            f"client={type(client).__qualname__} speaks {' and '.join(transport.protocols)}, another protocol than "
            f"{profile.name}'s {dialect.protocol}."
        )
    return HttpModel(
        dialect,
        transport,
        key=key_of(profile, api_key, own=own and not transport.brings_auth) if not transport.protocols else None,
        capabilities=capabilities,
        provider=provider or profile.name,
        default_model=default_model,
        query=query,
        own_server=own or cloud,
        weighs=client is None and not any("beta" in name for name, _ in profile.headers),
        secrets=secrets_of(profile, api_key, client, query),
    )
