"""One versioned, data-only encoding for everything that is stored."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TypeVar
from uuid import UUID

import msgspec

from agentkit.core.contracts.messages import JsonValue
from agentkit.core.contracts.text import clean_text
from agentkit.errors import StoreError

__all__ = ["Migration", "decode_data", "encode_data", "register_migration"]

T = TypeVar("T")
Migration = Callable[[JsonValue], JsonValue]

_SCALARS = (str, bool, int, type(None), Decimal, datetime, date, time, timedelta, UUID, bytes)
_ENCODER = msgspec.json.Encoder(decimal_format="string")
_VERSIONS: dict[str, int] = {}
_MIGRATIONS: dict[tuple[str, int], Migration] = {}


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What lies around every stored value."""

    v: int
    kind: str
    data: msgspec.Raw


def register_migration(kind: str, from_version: int, migrate: Migration) -> None:
    """Make stored values of this kind and version readable: `migrate` turns their data into the next version's.

    New values are written at the highest version that has been registered. Raises StoreError for a gap.
    """
    current = _VERSIONS.get(kind, 1)
    if from_version != current:
        raise StoreError(f"The next migration of {kind!r} starts at version {current}, not {from_version}.")
    _MIGRATIONS[kind, from_version] = migrate
    _VERSIONS[kind] = from_version + 1


def encode_data(kind: str, value: object) -> bytes:
    """Return the value as bytes; Decimal, datetime, bytes, UUID, enums and structs come back exactly by their type.

    NULs and lone surrogates in texts are replaced. Raises StoreError with the path and type of anything that is no
    data, before anything is written.
    """
    head = f'{{"v":{_VERSIONS.get(kind, 1)},"kind":"{kind}","data":'.encode()
    try:
        body = _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError):
        body = _ENCODER.encode(_cleaned(value, "$"))
    else:
        if b"null" in body:
            _check_numbers(value)
        if b"\\u0000" in body:
            body = _ENCODER.encode(_cleaned(value, "$"))
    return head + body + b"}"


def decode_data(data: bytes, kind: str, type_: type[T]) -> T:
    """Return the value these bytes were made from, migrated to the version of today.

    Raises StoreError, with version and path, for truncated bytes, another kind, a newer version, or data that does
    not fit; it never returns a substitute.
    """
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
    except msgspec.MsgspecError as error:
        raise StoreError(f"A stored {kind} cannot be read: {error}.") from error
    version, current = envelope.v, _VERSIONS.get(kind, 1)
    if envelope.kind != kind:
        raise StoreError(f"Expected a stored {kind}, found a {envelope.kind!r}.")
    if version > current:
        raise StoreError(
            f"This {kind} was stored as version {version}; this release reads up to {current}. Upgrade it."
        )
    try:
        if version == current:
            return msgspec.json.decode(envelope.data, type=type_)
        plain: JsonValue = msgspec.json.decode(envelope.data)
        for step in range(version, current):
            plain = _MIGRATIONS[kind, step](plain)
        return msgspec.convert(plain, type_, strict=False)
    except msgspec.MsgspecError as error:
        raise StoreError(f"A stored {kind} of version {version} does not fit: {error}.") from error


def _check_numbers(value: object) -> None:
    for path, item in _walk(value, "$"):
        if isinstance(item, float) and not math.isfinite(item):
            raise StoreError(f"{path} is {item!r}, which JSON cannot hold; store None or a text instead.")


def _cleaned(value: object, path: str) -> object:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise StoreError(f"{path} is {value!r}, which JSON cannot hold; store None or a text instead.")
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, Mapping):
        return {_key(key, path): _cleaned(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_cleaned(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, msgspec.Struct):
        plain = {name: _cleaned(getattr(value, name), f"{path}.{name}") for name in value.__struct_fields__}
        tag = value.__struct_config__
        return {tag.tag_field: tag.tag, **plain} if tag.tag_field is not None else plain
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _cleaned(getattr(value, f.name), f"{path}.{f.name}") for f in dataclasses.fields(value)}
    raise StoreError(f"{path} is a {type(value).__qualname__}, which is no data; keep live objects in Services.app.")


def _key(key: object, path: str) -> object:
    if isinstance(key, str):
        return clean_text(key)
    if isinstance(key, (bool, float)) or not isinstance(key, (int, Enum, UUID, Decimal, date)):
        raise StoreError(f"{path} has a key of type {type(key).__qualname__}; use texts or whole numbers as keys.")
    return key.value if isinstance(key, Enum) else key


def _walk(value: object, path: str) -> Iterator[tuple[str, object]]:
    yield path, value
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple, set, frozenset)):
        for index, item in enumerate(value):
            yield from _walk(item, f"{path}[{index}]")
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _walk(getattr(value, name), f"{path}.{name}")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _walk(getattr(value, field.name), f"{path}.{field.name}")
