"""From options to values; what is wrong is named by its option, with what to write instead."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from agentkit.calls import Binding
from agentkit.catalog import DEFAULT_PRICES, family, parse_price
from agentkit.core.contracts import JsonObject, ModelSettings
from agentkit.core.runtime.metering.budget import Budget
from agentkit.errors import ConfigurationError, MoneyPrecisionError
from agentkit.providers.profiles import PROFILES
from agentkit.schema import check_schema

__all__ = ["read_binding", "read_budget", "read_question", "read_schema", "read_settings", "read_tool"]

_DEFAULT = "local:smollm2"
_MOST_NAMES = 8
_OFFLINE = ("local", "scripted")


def read_question(given: str) -> str:
    """Return the question, from standard input when it is '-'; bytes that are no UTF-8 are replaced."""
    if given != "-":
        return given
    if sys.stdin is None:
        raise ConfigurationError("question '-' reads standard input, which is closed; pass the question itself.")
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def read_budget(given: str) -> Budget:
    """Return a budget that raises when it is crossed."""
    try:
        return Budget(given, on_exceeded="raise")
    except (ConfigurationError, MoneyPrecisionError) as error:
        raise ConfigurationError(f"--budget {given}: {error.message}") from error


def read_settings(options: argparse.Namespace) -> ModelSettings:
    """Return the model's knobs."""
    return ModelSettings(max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed)


def read_schema(name: str) -> JsonObject:
    """Return the JSON Schema in a file."""
    try:
        schema = msgspec.json.decode(Path(name).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"--output-schema {name}: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--output-schema {name}: not JSON ({error}).") from error
    return check_schema(schema, f"--output-schema {name}")


def read_tool(name: str) -> Callable[..., object]:
    """Return the function that MODULE:FUNCTION names; modules in the working directory are found too."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigurationError(f"--tools {name}: write MODULE:FUNCTION, such as mytools:weather.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigurationError(
            f"--tools {name}: cannot import {module_name} ({type(error).__name__}: {error})."
        ) from error
    function: object = getattr(module, attribute, None)
    if not callable(function):
        names = sorted(key for key, value in vars(module).items() if callable(value) and key[0] != "_")
        raise ConfigurationError(
            f"--tools {name}: {module_name} has no function {attribute!r}; it has {_some(attribute, names)}."
        )
    return function


def read_binding(options: argparse.Namespace, progress: Callable[[str], None]) -> Binding:
    """Return who answers; a model that its provider is not known to have is refused with the nearest names."""
    model: str = options.model or ("" if options.base_url else _DEFAULT)
    if options.price is not None:
        _check_price(options.price)
    if options.base_url:
        model = _remote_name(model)
    else:
        _check_model(model, priced=options.price is not None)
    if model.startswith("local:"):
        from agentkit.providers.local import LocalModel

        local = LocalModel(model.removeprefix("local:"), protocol=options.protocol, progress=progress)
        return Binding(local, price=options.price)
    key = _key(options.api_key_env)
    if key is None and not options.base_url:
        _check_key(model)
    return Binding(model, base_url=options.base_url, api_key=key, protocol=options.protocol, price=options.price)


def _remote_name(model: str) -> str:
    provider, colon, _ = model.partition(":")
    if not model:
        raise ConfigurationError("--base-url: name the model that the server there has, with --model NAME.")
    if colon and provider in _OFFLINE:
        raise ConfigurationError(f"--model {model}: {provider} models run in this process; leave --base-url out.")
    return model if colon and provider.partition("+")[0] in PROFILES else f"openai:{model}"


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise ConfigurationError(f"--api-key-env: the variable {variable} is not set.")
    return key


def _check_key(model: str) -> None:
    provider = model.partition(":")[0]
    profile = PROFILES.get(provider)
    if profile is None or not profile.key_variables:
        return
    if not any(os.environ.get(variable, "").strip() for variable in profile.key_variables):
        raise ConfigurationError(
            f"--model {model}: no key for {provider}: set the environment variable "
            f"{' or '.join(profile.key_variables)}, or name the one that holds it with --api-key-env."
        )


def _check_price(given: str) -> None:
    try:
        parse_price(given)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"--price {given}: write IN/OUT in dollars per million tokens, such as 1.25/10, or 0 for free."
        ) from error


def _check_model(model: str, *, priced: bool) -> None:
    provider, colon, name = model.partition(":")
    if not colon:
        owners = [owner for owner in PROFILES if _is_listed(owner, model)]
        meant = " or ".join(f"{owner}:{model}" for owner in owners[:3]) or f"openai:{model}"
        raise ConfigurationError(
            f"--model {model}: name the provider too, such as {meant}, or say where the server is with --base-url."
        )
    names = DEFAULT_PRICES.names(provider)
    if priced or not names or not name or _is_listed(provider, name):
        return
    near = DEFAULT_PRICES.nearest(provider, name)
    hint = f"did you mean {' or '.join(near)}?" if near else "no name this release knows is near it."
    raise ConfigurationError(
        f"--model {model}: {provider} has no model {name!r} that this release knows; {hint} "
        "If it is newer than that, give its price with --price IN/OUT, in dollars per million tokens."
    )


def _is_listed(provider: str, name: str) -> bool:
    names = DEFAULT_PRICES.names(provider)
    return name in names or family(name) in names


def _some(wanted: str, names: Sequence[str]) -> str:
    """Return the nearest names first, and not too many of them."""
    near = get_close_matches(wanted, names, n=3)
    shown = [*near, *(name for name in names if name not in near)][:_MOST_NAMES]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more if shown else "none"
