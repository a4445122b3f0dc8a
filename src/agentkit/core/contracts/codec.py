"""One versioned, data-only encoding for everything that is stored."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TypeVar
from uuid import UUID

import msgspec

from agentkit.core.contracts.messages import JsonValue
from agentkit.core.contracts.text import clean_data
from agentkit.errors import ConfigurationError, StoreError

__all__ = ["Migration", "decode_data", "encode_data", "register_migration"]

T = TypeVar("T")
Migration = Callable[[JsonValue], JsonValue]

_EXACT = (bytes, bytearray, memoryview, Decimal, datetime, date, time, timedelta, UUID)
_NOT_FINITE = (b'NaN"', b'Infinity"', b'nan"', b'inf"')  # how msgspec spells decimals that are no number
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

    New values are written at the highest version that has been registered. Raises ConfigurationError for a gap.
    """
    current = _VERSIONS.get(kind, 1)
    if from_version != current:
        raise ConfigurationError(f"The next migration of {kind!r} starts at version {current}, not {from_version}.")
    _MIGRATIONS[kind, from_version] = migrate
    _VERSIONS[kind] = from_version + 1


def encode_data(kind: str, value: object) -> bytes:
    """Return the value as bytes; Decimal, datetime, bytes, UUID, enums and structs come back exactly by their type.

    NULs and lone surrogates in texts are replaced. Raises StoreError with the path and type of anything that is no
    data, before anything is written.
    """
    try:
        body = _ENCODER.encode(value)
    except UnicodeEncodeError:
        body = _encode_cleaned(kind, value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _refusal(kind, value, error) from error
    if any(spelling in body for spelling in _NOT_FINITE) or (b"null" in body and not _is_finite(value)):
        _refuse_not_finite(kind, value)
    if b"\\u0000" in body:
        body = _encode_cleaned(kind, value)
    return _ENCODER.encode(Envelope(_VERSIONS.get(kind, 1), kind, msgspec.Raw(body)))


def decode_data(data: bytes, kind: str, type_: type[T]) -> T:
    """Return the value these bytes were made from, migrated to the version of today.

    Raises StoreError, with version and path, for truncated bytes, another kind, a newer version, missing or unknown
    keys, and data of another type; it never returns a substitute.
    """
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"A stored {kind} cannot be read: {error}") from error
    version, current = envelope.v, _VERSIONS.get(kind, 1)
    if envelope.kind != kind:
        raise StoreError(f"Expected a stored {kind}, found a {envelope.kind!r}.")
    if not 1 <= version <= current:
        raise StoreError(f"This {kind} was stored as version {version}; this release reads 1 to {current}. Upgrade it.")
    raw: bytes | msgspec.Raw = envelope.data if version == current else _migrated(envelope, current)
    try:
        value = msgspec.json.decode(raw, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"A stored {kind} of version {version} does not fit: {error}") from error
    if not _comes_back(value, raw):
        stranger = _unknown(value, msgspec.json.decode(raw), "$")
        if stranger is not None:
            raise StoreError(f"A stored {kind} of version {version} has {stranger}, which this release does not know.")
    return value


def _migrated(envelope: Envelope, current: int) -> bytes:
    plain: JsonValue = msgspec.json.decode(envelope.data)
    for step in range(envelope.v, current):
        try:
            plain = _MIGRATIONS[envelope.kind, step](plain)
        except Exception as error:
            raise StoreError(
                f"A stored {envelope.kind} cannot be migrated from version {step} to {step + 1}: {error!r}"
            ) from error
    return _ENCODER.encode(plain)


def _encode_cleaned(kind: str, value: object) -> bytes:
    try:
        plain = msgspec.to_builtins(value, builtin_types=_EXACT, str_keys=True)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _refusal(kind, value, error) from error
    return _ENCODER.encode(clean_data(plain))


def _refusal(kind: str, value: object, error: Exception) -> StoreError:
    if isinstance(error, RecursionError):
        return StoreError(f"A {kind} cannot be stored: it is nested too deeply, or contains itself.")
    for path, item in _leaves(value, "$"):
        try:
            _ENCODER.encode(item)
        except UnicodeEncodeError:
            continue
        except (TypeError, ValueError, OverflowError):
            return StoreError(
                f"A {kind} cannot be stored: {path} is of type {type(item).__qualname__}, which is no data; keep live "
                "objects in Services.app."
            )
    return StoreError(f"A {kind} cannot be stored: {error}")


def _is_finite(value: object) -> bool:
    """Return whether every float is a number; msgspec writes null for one that is none."""
    try:
        json.dumps(msgspec.to_builtins(value, str_keys=True), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _refuse_not_finite(kind: str, value: object) -> None:
    for path, item in _leaves(value, "$"):
        if isinstance(item, (float, Decimal)) and not math.isfinite(item):
            raise StoreError(
                f"A {kind} cannot be stored: {path} is {item!r} of type {type(item).__qualname__}, which is no JSON "
                "number; store None or a text instead."
            )


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                yield f"{path}, key {key!r},", _as_leaf(key)
            yield from _leaves(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple, set, frozenset)):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif names := _fields(value):
        for name in names.values():
            yield from _leaves(getattr(value, name), f"{path}.{name}")
    else:
        yield path, value


def _as_leaf(key: object) -> object:
    return object() if isinstance(key, (tuple, frozenset, type(None))) else key


def _fields(value: object) -> dict[str, str]:
    """Return the stored name of each field of a struct, dataclass or attrs object, with its name in Python."""
    if isinstance(value, msgspec.Struct):
        return dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
    if isinstance(value, type):
        return {}
    if dataclasses.is_dataclass(value):
        return {field.name: field.name for field in dataclasses.fields(value)}
    return {field.name: field.name for field in getattr(value, "__attrs_attrs__", ())}


def _comes_back(value: object, raw: bytes | msgspec.Raw) -> bool:
    try:
        return _ENCODER.encode(value) == bytes(raw)
    except (TypeError, ValueError):
        return False


def _unknown(value: object, plain: JsonValue, path: str) -> str | None:
    """Return the path of the first stored part that has no place in the value."""
    pairs: list[tuple[str, object, JsonValue]] = []
    if isinstance(plain, dict):
        if isinstance(value, dict):
            names: dict[str, object] = dict(
                zip(msgspec.to_builtins(dict.fromkeys(value), str_keys=True), value.values(), strict=True)
            )
        else:
            names = {stored: getattr(value, name) for stored, name in _fields(value).items()}
            if isinstance(value, msgspec.Struct) and (tag := value.__struct_config__.tag_field) is not None:
                names[tag] = plain.get(tag)
        for key in plain:
            if key not in names:
                return f"{path}.{key}"
        pairs = [(f"{path}.{key}", names[key], item) for key, item in plain.items()]
    elif isinstance(plain, list) and isinstance(value, (list, tuple)):
        pairs = [(f"{path}[{i}]", mine, item) for i, (mine, item) in enumerate(zip(value, plain, strict=True))]
    for place, mine, item in pairs:
        if (found := _unknown(mine, item, place)) is not None:
            return found
    return None
