"""``tracekit mcp``: what an agent asks is a command line, and what it reads is what the terminal shows."""

import json
import sys
from pathlib import Path

import anyio
import pytest
import typer
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.codes import has_code
from tracekit.cli.agents import (
    MAX_ANSWER_CHARS,
    TOOLS,
    describe_tool,
    list_words,
    run_tool,
    shorten,
)
from tracekit.cli.app import app
from tracekit.errors import RequestError
from tracekit.packaged import DEMO_SAMPLE, find_samples

COMMANDS = typer.main.get_command(app).commands
SAMPLE = str(find_samples()[DEMO_SAMPLE])


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("predict", {"traces": ["-t.json"], "gpu": ["l4", "t4"]}, ["--gpu=l4", "--gpu=t4", "--", "-t.json"]),
        ("predict", {"traces": "c.json", "train": True, "compile": False}, ["--train", "--", "c.json"]),
        ("predict", {"traces": "c.json", "batch": 4}, ["--batch=4", "--", "c.json"]),
        ("predict", {"traces": ["t"], "options": ["--top=3", "-v"]}, ["--top=3", "-v", "--", "t"]),
        ("compare", {"b": "b.json", "a": "a.json"}, ["--", "a.json", "b.json"]),
        ("gpus", {}, []),
    ],
)  # fmt: skip
def test_inputs_are_words_of_a_command_line(name, given, words):
    assert list_words(COMMANDS[name], given) == words


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"traces": "t.json", "gpus": ["l4"]}, "tool-option-unknown"),
        ({"gpu": ["l4"]}, "tool-input-missing"),
        ({"traces": "t.json", "options": ["another.json"]}, "tool-option-malformed"),
        ({"traces": "t.json", "options": ["--"]}, "tool-option-malformed"),
    ],
)
def test_what_is_no_option_is_refused(given, code):
    with pytest.raises(RequestError, check=has_code(code)):
        list_words(COMMANDS["predict"], given)


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_is_described_by_its_command(name):
    command = COMMANDS[name]
    schema = describe_tool(command)
    known = {parameter.name: parameter for parameter in command.params}
    asked = set(schema["properties"]) - {"options"}
    assert asked <= set(known)
    assert {one for one, parameter in known.items() if parameter.param_type_name == "argument"} <= asked
    assert all(schema["properties"][one]["description"] for one in asked)


def test_all_tools_together_are_short():
    assert sum(len(json.dumps(describe_tool(COMMANDS[name]))) for name in TOOLS) < 30_000


def test_a_long_answer_ends_at_a_line_and_says_how_many_are_left():
    text = "\n".join(f"line {number:04}" for number in range(1000))
    kept, _, note = shorten(text).rpartition("\n")
    shown = kept.count("\n") + 1
    assert text.startswith(kept)
    assert len(kept) <= MAX_ANSWER_CHARS
    assert note.startswith(f"({1000 - shown} more lines")
    assert shorten("a\nb") == "a\nb"


@pytest.mark.heavy
def test_an_agent_reads_what_the_terminal_shows(tmp_path):
    asked = {"traces": [SAMPLE], "gpu": ["l4"]}
    server = StdioServerParameters(command=sys.executable, args=["-m", "tracekit", "mcp"], cwd=Path.cwd())

    async def ask():
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            tools = await session.list_tools()
            answers = [
                await session.call_tool("predict", asked),
                await session.call_tool("doctor", {"traces": [str(tmp_path / "missing.json")]}),
                await session.call_tool("predict", {"gpus": ["l4"]}),
                await session.call_tool("format_disk", {}),
            ]
            return [tool.name for tool in tools.tools], answers

    names, answers = anyio.run(ask)
    assert tuple(names) == TOOLS
    assert answers[0].content[0].text == run_tool("predict", list_words(COMMANDS["predict"], asked))[0]
    assert [one.is_error for one in answers] == [False, True, True, True]
    assert "[file-not-found]" in answers[1].content[0].text


def test_the_skill_names_commands_that_there_are(run):
    code, out, _ = run("mcp", "--skill")
    assert code == 0
    named = {word.split()[1] for word in out.split("`") if word.startswith("tracekit ")}
    assert {"predict", "doctor", "sweep", "serving", "compare"} <= named <= {*COMMANDS, "COMMAND"}
