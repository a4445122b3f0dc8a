"""Bad input on the command line: exit code 2, and a sentence that says what to write instead."""

from __future__ import annotations

import pytest

from agentkit.cli import main
from agentkit.testing import LoopbackServer, Turn

SCRIPTED = ("ask", "hi", "--model", "scripted:hello")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("openai:gpt-4o-mini", ["OPENAI_API_KEY", "--api-key-env"]),
        ("anthropic:claude-sonnet-4-6", ["ANTHROPIC_API_KEY"]),
        ("opnai:gpt-4o", ["'opnai'", "openai"]),
        ("gpt-4o-mini", ["openai:gpt-4o-mini", "--base-url"]),
        ("my-model", ["--base-url"]),
        (":", ["name provider and model"]),
        ("openai:", ["openai"]),
        ("local:smolm2", ["smollm2"]),
    ],
)
async def test_a_model_that_cannot_be_reached_is_explained(command, model: str, said: list[str]) -> None:
    """A missing key names its variable, an unknown provider or local model the nearest one."""
    done = await command("ask", "hi", "--model", model)
    assert (done.code, done.out) == (2, "")
    assert all(word in done.err for word in said), done.err


@pytest.mark.parametrize("budget", [(), ("--budget", "1")])
@pytest.mark.parametrize(
    ("model", "near"), [("openai:gpt-4o-minni", "gpt-4o-mini"), ("anthropic:claude-sonet-4-6", "claude-sonnet-4-6")]
)
async def test_an_unknown_model_is_named_before_a_missing_key(command, model: str, near: str, budget: tuple) -> None:
    """The nearest names come first: a key would not help. A given price says the model is meant."""
    done = await command("ask", "hi", "--model", model, *budget)
    assert done.code == 2
    assert near in done.err
    assert "--price" in done.err
    assert "API_KEY" not in done.err
    meant = await command("ask", "hi", "--model", model, "--price", "1/2", *budget)
    assert meant.code == 2
    assert "_API_KEY" in meant.err


async def test_a_model_unlike_any_other_and_a_dated_one(command) -> None:
    """Without a near name the model is still refused; a dated id of a known family passes on to its key."""
    done = await command("ask", "hi", "--model", "openai:qqqqqqqq", "--json")
    assert done.code == done.json["error"]["exit_code"] == 2
    assert "qqqqqqqq" in done.json["error"]["message"]
    dated = await command("ask", "hi", "--model", "anthropic:claude-sonnet-4-6-20260301")
    assert "ANTHROPIC_API_KEY" in dated.err


async def test_the_providers_key_is_not_sent_to_another_server(command) -> None:
    """With --base-url a plain or unlisted name is taken as it is, and the provider's own key stays here."""
    async with LoopbackServer([Turn(text="ok")]) as server:
        options = ["--model", "openai:gpt-4o-minni", "--base-url", server.url]
        done = await command("ask", "hi", *options, env={"OPENAI_API_KEY": "sk-mine"})
    assert (done.code, done.out) == (0, "ok\n")
    assert server.requests[0].body["model"] == "gpt-4o-minni"
    assert "sk-mine" not in str(server.requests[0].headers)


@pytest.mark.parametrize("model", ["llama3:8b", "opnai:x", "plain"])
async def test_a_server_of_ones_own_names_its_models_as_it_likes(command, model: str) -> None:
    """With --base-url a name that starts with no known provider goes there whole, colons included."""
    async with LoopbackServer([Turn(text="ok")]) as server:
        done = await command("ask", "hi", "--model", model, "--base-url", server.url)
    assert (done.code, done.out) == (0, "ok\n")
    assert server.requests[0].body["model"] == model


@pytest.mark.parametrize("options", [[], ["--model", "local:smollm2"], ["--model", "scripted:hello"]])
async def test_a_server_is_not_left_out_silently(command, options: list[str]) -> None:
    """--base-url without a model, or with one that runs in this process, is refused instead of answered from here."""
    async with LoopbackServer([Turn(text="never")]) as server:
        done = await command("ask", "hi", "--base-url", server.url, *options)
    assert (done.code, done.out, server.requests) == (2, "", [])
    assert "--base-url" in done.err
    assert "--model" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--budget", "abc"], "--budget abc: 'abc' is not an amount"),
        (["--budget", "0.1234567890123"], "write '0.123456789012'"),
        (["--budget=-1"], "--budget -1"),
        (["--price", "5"], "--price 5: write IN/OUT"),
        (["--price", "a/b"], "--price a/b: write IN/OUT"),
        (["--model", "openai:m", "--base-url", "example"], "http://"),
        (["--api-key-env", "NOPE"], "NOPE is not set"),
        (["--output-schema", "missing.json"], "--output-schema missing.json: No such file"),
        (["--output-schema", "."], "--output-schema .: Is a directory"),
        (["--output-schema", "cut.json"], "--output-schema cut.json: not JSON"),
        (["--output-schema", "bytes.json"], "--output-schema bytes.json: not JSON"),
        (["--output-schema", "list.json"], "is a dict, this is a list"),
        (["--output-schema", "wrong.json"], "--output-schema wrong.json: not a JSON Schema: type"),
        (["--output-schema", "remote.json"], "leads outside of the schema"),
        (["--timeout", "0"], "--timeout: '0': pass seconds, above 0"),
        (["--timeout", "soon"], "--timeout: 'soon'"),
        (["--max-tokens", "0"], "--max-tokens: '0': pass a whole number, 1 or more"),
        (["--temperature", "nan"], "--temperature: 'nan'"),
        (["--temperature=-1"], "--temperature: '-1': pass 0 or more"),
        (["--seed", "x"], "--seed"),
        (["--frob"], "--frob"),
    ],
)
def test_a_bad_option_is_named(command, monkeypatch, capsys, options: list[str], said: str) -> None:
    """Each option that cannot be used is named with the reason; nothing goes to standard output."""
    command.write("cut.json", '{"type": ')
    (command.folder / "bytes.json").write_bytes(b'{"title": "caf\xe9"}')
    command.write("list.json", "[]")
    command.write("wrong.json", '{"type": "objekt"}')
    command.write("remote.json", '{"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}}')
    monkeypatch.chdir(command.folder)
    try:
        code = main([*SCRIPTED, *options])
    except SystemExit as leaving:  # argparse's way
        code = leaving.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("mytools", "write MODULE:FUNCTION"),
        ("mytools:", "write MODULE:FUNCTION"),
        (":weather", "write MODULE:FUNCTION"),
        ("mytool:weather", "cannot import mytool"),
        ("broken:weather", "cannot import broken (SyntaxError"),
        ("raising:weather", "cannot import raising (RuntimeError: no licence"),
        ("mytools:wether", "no function 'wether'; it has weather"),
        ("mytools:NUMBER", "no function 'NUMBER'"),
        ("mytools:bare", "'city' has no annotation"),
        ("mytools:starred", "'words' cannot be passed by name"),
        ("mytools:mute", "no description"),
    ],
)
async def test_a_tool_that_is_none_is_refused(command, named: str, said: str) -> None:
    """Modules that fail, names that are not there and functions that cannot be tools are refused before a call."""
    command.write("broken.py", "def weather(:\n")
    command.write("raising.py", "raise RuntimeError('no licence')\n")
    command.write(
        "mytools.py",
        "NUMBER = 1\n"
        "def weather(city: str) -> str:\n    'Say the weather.'\n"
        "def bare(city) -> str:\n    'Say the weather.'\n"
        "def starred(*words: str) -> str:\n    'Say the weather.'\n"
        "def mute(city: str) -> str:\n    return city\n",
    )
    done = await command("run", "hi", "--model", "scripted:hello", "--tools", named)
    assert (done.code, done.out) == (2, "")
    assert said in done.err, done.err


async def test_two_tools_of_one_name_are_refused(command) -> None:
    """The same function twice is named, as in a toolbox."""
    command.write("mytools.py", "def weather(city: str) -> str:\n    'Say the weather.'\n")
    twice = ["--tools", "mytools:weather", "--tools", "mytools:weather"]
    done = await command("run", "hi", "--model", "scripted:hello", *twice)
    assert done.code == 2
    assert "'weather'" in done.err
