"""Reading the command line and choosing what to do."""

from __future__ import annotations

import argparse
import asyncio
import io
import math
import os
import sys
from collections.abc import Callable, Coroutine, Sequence

from agentkit.cli.failure import FAILED, INTERRUPTED, Failure, failure_of

__all__ = ["main"]

_EPILOG = """exit codes: 0 answered; 1 the model or a tool failed; 2 bad input (key, model, option, file);
3 a budget, deadline or turn limit was reached; 4 no usable answer (refused, or it does not fit the schema);
130 interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign is no reason to fail
    parser = _parser()
    options = parser.parse_args(argv)
    action: Callable[[argparse.Namespace], Coroutine[object, object, int]] = options.action
    try:
        code = asyncio.run(action(options))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        _report(Failure(INTERRUPTED, "KeyboardInterrupt", "interrupted"), as_json=getattr(options, "json", False))
        return INTERRUPTED
    except BrokenPipeError:
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to flush goes nowhere
        return FAILED
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        _report(failure, as_json=getattr(options, "json", False))
        return failure.code


def _report(failure: Failure, *, as_json: bool) -> None:
    if as_json:
        print(failure.as_json())
    print(f"agentkit: {failure.message}", file=sys.stderr)
    if failure.hint:
        print(f"          {failure.hint}", file=sys.stderr)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: pass a whole number, 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    seconds = _finite(text)
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: pass seconds, above 0")
    return seconds


def _temperature(text: str) -> float:
    temperature = _finite(text)
    if temperature < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: pass 0 or more")
    return temperature


def _finite(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r}: pass a number")
    return number


def _parser() -> argparse.ArgumentParser:
    from agentkit import __version__

    parser = argparse.ArgumentParser(
        prog="agentkit",
        description="Ask models and run agents under an exact budget.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"agentkit {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_ask(commands.add_parser("ask", help="ask a model once", description="Ask a model once, streaming its answer."))
    run = commands.add_parser("run", help="run a model with tools", description="Let a model use Python functions.")
    _add_ask(run)
    run.add_argument(
        "--tools",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="a function it may call; repeat for more",
    )
    run.add_argument("--max-turns", type=_count, default=None, metavar="N", help="turns with tools (default 12)")
    demo = commands.add_parser("demo", help="see everything at work, without a key")
    demo.add_argument("--scripted", action="store_true", help="use no real model at all")
    demo.set_defaults(action=_demo)
    _add_models(commands.add_parser("models", help="list or fetch the weights of local models"))
    _add_costs(commands.add_parser("costs", help="what a ledger says was spent", description="Sum up a ledger."))
    _add_prices(commands.add_parser("prices", help="list, explain and validate prices"))
    return parser


def _add_ask(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("question", help="what to ask; '-' reads standard input")
    parser.add_argument(
        "--model",
        default=None,
        metavar="PROVIDER:MODEL",
        help="openai:..., anthropic:..., local:smollm2 (default), or a plain name together with --base-url",
    )
    parser.add_argument(
        "--base-url", default=None, metavar="URL", help="a compatible server, such as http://host:8000/v1"
    )
    parser.add_argument(
        "--protocol",
        default=None,
        choices=["chat", "responses", "messages"],
        help="which of its protocols the server is asked in",
    )
    parser.add_argument("--api-key-env", default=None, metavar="VAR", help="the variable that holds the key")
    parser.add_argument("--instructions", default="", metavar="TEXT", help="system instructions")
    parser.add_argument("--output-schema", default=None, metavar="FILE", help="a JSON Schema the answer has to fit")
    parser.add_argument("--budget", default=None, metavar="USD", help="the most it may cost, such as 0.05")
    parser.add_argument("--price", default=None, metavar="IN/OUT", help="dollars per million tokens, such as 1.25/10")
    parser.add_argument("--max-tokens", type=_count, default=None, metavar="N", help="the most tokens of an answer")
    parser.add_argument("--temperature", type=_temperature, default=None, metavar="T", help="0 is the calmest")
    parser.add_argument("--seed", type=int, default=None, metavar="N", help="repeats an answer, where the server can")
    parser.add_argument(
        "--timeout", type=_seconds, default=None, metavar="SECONDS", help="the deadline of the whole run"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.set_defaults(action=_ask, tools=[], max_turns=None)


def _add_models(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="list|add")
    actions.add_parser("list", help="list known local models").set_defaults(action=_models_list)
    add = actions.add_parser("add", help="fetch a model's weights, check and cache them")
    add.add_argument("name", metavar="NAME")
    add.set_defaults(action=_models_add)


def _add_costs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", required=True, metavar="STORE", help="sqlite:FILE, a file, or postgresql://...")
    parser.add_argument(
        "--by",
        default="tenant",
        metavar="NAMES",
        help="tenant,user,session,agent,run,provider,model,purpose,day (default tenant; '' for one sum)",
    )
    parser.add_argument("--tenant", default=None, metavar="NAME", help="one tenant only")
    parser.add_argument(
        "--reported", action="store_true", help="show the attempts whose providers reported another cost, not the sums"
    )
    parser.add_argument("--since", default=None, metavar="DAY", help="from this day on (UTC)")
    parser.add_argument("--until", default=None, metavar="DAY", help="up to and with this day (UTC)")
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table", help="how to print")
    parser.add_argument("--plot", default=None, metavar="FILE.svg", help="draw the sums as bars into this file")
    parser.set_defaults(action=_costs)


def _add_prices(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="list|explain|validate")
    listing = actions.add_parser("list", help="list providers, or the models of one")
    listing.add_argument("provider", nargs="?", default=None, metavar="PROVIDER")
    explain = actions.add_parser("explain", help="why a model costs what it does")
    explain.add_argument("model", metavar="PROVIDER:MODEL")
    explain.add_argument(
        "--at", default=None, metavar="DAY", help="on this day or at this moment (UTC); now by default"
    )
    explain.add_argument("--tier", default=None, metavar="NAME", help="the service tier, such as flex or batch")
    explain.add_argument(
        "--fact", action="append", default=[], metavar="NAME=VALUE", help="a billing fact, such as region=eu"
    )
    explain.add_argument(
        "--usage", action="append", default=[], metavar="NAME=N", help="input=1000, output=50, web_searches=2, ..."
    )
    for each in (listing, explain):
        each.add_argument("--table", default=None, metavar="FILE", help="a price table of your own (TOML)")
    validate = actions.add_parser("validate", help="check a price table of your own")
    validate.add_argument("file", metavar="FILE")
    listing.set_defaults(action=_prices, what="list_command")
    explain.set_defaults(action=_prices, what="explain_command")
    validate.set_defaults(action=_prices, what="validate_command")


async def _costs(options: argparse.Namespace) -> int:
    from agentkit.cli.costs import costs_command

    return await costs_command(options)


async def _prices(options: argparse.Namespace) -> int:
    from agentkit.cli import prices

    command: Callable[[argparse.Namespace], Coroutine[object, object, int]] = getattr(prices, options.what)
    return await command(options)


async def _ask(options: argparse.Namespace) -> int:
    from agentkit.cli.ask import ask_command

    return await ask_command(options)


async def _demo(options: argparse.Namespace) -> int:
    from agentkit.cli.demo import demo_command

    return await demo_command(scripted=options.scripted)


async def _models_list(_: argparse.Namespace) -> int:
    from agentkit.cli.models import list_command

    return await list_command()


async def _models_add(options: argparse.Namespace) -> int:
    from agentkit.cli.models import add_command

    return await add_command(options.name)
