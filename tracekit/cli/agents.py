"""``tracekit mcp``: answer agents over the Model Context Protocol, with a tool for each command.

A tool is the command itself, run apart as a user would: what an agent reads is what the terminal shows. Its input is
made from the command's own declarations: the options that questions are about as properties, all others as words.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from tracekit.errors import RequestError, TracekitError
from tracekit.messages import front_ends
from tracekit.messages.requests import EXTRA_MISSING
from tracekit.request.option import split_values

TOOLS = (
    "predict", "sweep", "serving", "shard", "capture", "compare", "report", "info", "doctor", "gpus", "clusters",
    "hosts", "explain",
)  # fmt: skip
"""Commands that answer questions."""
ASKED = frozenset(
    {
        "batch", "cluster", "compile", "concurrency", "context", "decode", "dp", "ep", "framework", "fsdp", "gpu",
        "host", "input_tokens", "micro_batches", "output", "output_tokens", "pp", "precision", "prefill", "price",
        "rate", "seq", "source_gpu", "steps", "table", "tp", "tpot_below", "train", "ttft_below", "what_if",
    }
)  # fmt: skip
"""Options that stand in a tool's description: of a dozen commands all would be 20,000 tokens."""
OTHERS = "options"
"""Property for all other options."""
MAX_ANSWER_CHARS = 6_000
"""2,000 tokens, at three characters each: numbers and names take more of them than prose."""
WIDTH = 100
"""Columns of an answer."""
INSTRUCTIONS = (
    "tracekit predicts how long a PyTorch step takes on other GPUs and clusters, from a profiler trace of the GPU that "
    "someone has, or from a model's config.json alone. Every time has a 90 % interval: tell it with the number, and "
    "what the notes say isn't known. Ask doctor first whether a trace is good enough. A what-if needs no new recording."
)

Skill = Annotated[bool, typer.Option("--skill", help="Print SKILL.md, which tells an agent when and how to use it.")]


def mcp(context: typer.Context, skill: Skill = False) -> None:
    """Answer agents over the Model Context Protocol, on standard input and output.

    Example: tracekit mcp --skill > SKILL.md
    """
    if skill:
        typer.echo(Path(__file__).with_name("SKILL.md").read_text(encoding="utf-8"), nl=False)
        return
    commands = context.parent.command.commands  # type: ignore[union-attr]
    serve_tools({name: commands[name] for name in TOOLS})


def describe_tool(command: Any) -> dict[str, Any]:
    """Return the JSON schema of a tool's input.

    Args:
        command: The command, as typer has it.
    """
    properties: dict[str, Any] = {}
    required = []
    for parameter in command.params:
        is_argument = parameter.param_type_name == "argument"
        if not is_argument and parameter.name not in ASKED:
            continue
        properties[parameter.name] = _describe_values(parameter) | {"description": parameter.help or parameter.name}
        if is_argument and parameter.required:
            required.append(parameter.name)
    others = f"Other options, as `tracekit {command.name} --help` lists them, such as --top=5."
    properties[OTHERS] = {"type": "array", "items": {"type": "string"}, "description": others}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _describe_values(parameter: Any) -> dict[str, Any]:
    if getattr(parameter, "is_flag", False):
        return {"type": "boolean"}
    one = {"type": ["string", "number"]}
    return {"type": "array", "items": one} if parameter.multiple or parameter.nargs != 1 else one


def list_words(command: Any, given: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line for a tool's input.

    Example: ``{"traces": ["t.json"], "gpu": ["h100-sxm"], "train": true}`` is ``--gpu=h100-sxm --train -- t.json``.

    Raises:
        RequestError: It has no such option, lacks what the command is about, or one of the others isn't written as an
            option.
    """
    known = {parameter.name: parameter for parameter in command.params}
    unknown = next((name for name in given if name != OTHERS and name not in known), None)
    if unknown is not None:
        near = get_close_matches(unknown, known) or sorted(ASKED.intersection(known))
        raise RequestError(front_ends.TOOL_OPTION_UNKNOWN(tool=command.name, given=unknown, near=near))
    needed = [name for name, one in known.items() if one.param_type_name == "argument" and one.required]
    missing = next((name for name in needed if not given.get(name)), None)
    if missing is not None:
        raise RequestError(front_ends.TOOL_INPUT_MISSING(tool=command.name, name=missing))
    options: list[str] = []
    arguments: list[str] = []
    for name, parameter in known.items():
        values = [str(one) for one in split_values(given.get(name))]
        if parameter.param_type_name == "argument":
            arguments += values
        elif getattr(parameter, "is_flag", False):
            options += [parameter.opts[0]] if given.get(name) is True else []
        else:
            options += [f"{parameter.opts[0]}={one}" for one in values]
    others = [str(one) for one in split_values(given.get(OTHERS))]
    wrong = next((one for one in others if not one.startswith("-") or one == "--"), None)
    if wrong is not None:
        raise RequestError(front_ends.TOOL_OPTION_MALFORMED(given=wrong))
    return [*options, *others, *(["--", *arguments] if arguments else [])]


def run_tool(name: str, words: Sequence[str]) -> tuple[str, bool]:
    """Run a command apart, and return what it printed, and whether it failed."""
    surroundings = os.environ | {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    found = subprocess.run(
        [sys.executable, "-P", "-m", "tracekit", name, *words],
        stdin=subprocess.DEVNULL, capture_output=True, env=surroundings, check=False, encoding="utf-8",
    )  # fmt: skip
    return shorten(f"{found.stdout}{found.stderr}".strip()), found.returncode != 0


def shorten(text: str) -> str:
    """Cut an answer at the last line within ``MAX_ANSWER_CHARS``, and say how many more there are."""
    if len(text) <= MAX_ANSWER_CHARS:
        return text
    kept = text[:MAX_ANSWER_CHARS].rpartition("\n")[0]
    left = text[len(kept) :].strip().count("\n") + 1
    return f"{kept}\n({left} more lines: name fewer targets, or set --top in {OTHERS})"


def serve_tools(commands: Mapping[str, Any]) -> None:
    """Serve tools until the agent closes standard input.

    Args:
        commands: The commands, as typer has them, by name.

    Raises:
        TracekitError: The package ``mcp`` isn't installed.
    """
    try:
        import anyio
        from mcp import types
        from mcp.server.lowlevel import Server
        from mcp.server.stdio import stdio_server
    except ImportError as error:
        raise TracekitError(EXTRA_MISSING(distribution=error.name, reason=str(error), extra="mcp")) from error
    from tracekit import __version__

    async def list_tools(session: Any, asked: Any) -> Any:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=command.help, input_schema=describe_tool(command))
                for name, command in commands.items()
            ]
        )

    async def call_tool(session: Any, asked: Any) -> Any:
        if asked.name not in commands:
            message, failed = str(front_ends.TOOL_UNKNOWN(given=asked.name, known=[*commands])), True
        else:
            try:
                words = list_words(commands[asked.name], asked.arguments or {})
            except RequestError as error:
                message, failed = str(error), True
            else:
                message, failed = await anyio.to_thread.run_sync(run_tool, asked.name, words)
        return types.CallToolResult(content=[types.TextContent(type="text", text=message)], is_error=failed)

    async def serve() -> None:
        server: Any = Server(
            "tracekit",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
        )
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(serve)
