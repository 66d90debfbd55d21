"""What help shows: ``-h`` the options that matter most, ``--help`` all, ``--help GROUP`` those of a group."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from typer.core import TyperCommand, TyperOption

from tracekit.cli.config_file import settle_defaults
from tracekit.request import Panel

SHORT, LONG = "-h", "--help"
MAIN_OPTIONS = {
    "predict": ("gpu", "cluster", "price", "batch", "output"),
    "sweep": ("cluster", "price", "world_size", "train", "output"),
    "compare": ("gpu", "fail_above", "keep", "json", "output"),
    "capture": ("gpu", "train", "batch", "seq", "output"),
    "shard": ("table", "cluster", "batch", "top", "output"),
    "serving": ("gpu", "concurrency", "rate", "price", "output"),
    "report": ("steps", "what_if", "top", "form", "output"),
    "info": ("steps", "ranks", "stacks", "verbose", "json"),
    "doctor": ("steps", "ranks", "source_gpu", "json", "quiet"),
    "export": ("gpu", "cluster", "what_if", "form", "output"),
    "share": ("gpu", "cluster", "steps", "output", "force"),
    "serve": ("host", "port", "token", "data", "workers"),
}
"""Options that ``-h`` shows of a command that has many."""
MAIN_COMMANDS = (
    "predict", "sweep", "compare", "capture", "serving", "report", "doctor", "record", "demo", "explain", "gpus",
    "serve",
)  # fmt: skip
"""Subcommands that ``-h`` shows of all."""
EXAMPLE = "Example: "
EXAMPLE_OF_ALL = f"{EXAMPLE}tracekit predict trace.json.gz --gpu h100-sxm --price h100-sxm=2.49"
MAX_NAME_CHARS, MAX_SENTENCE_CHARS, MAX_LINE_CHARS = 26, 130, 66
_SHOWN = "tracekit.shown"
_ASKED = "tracekit.asked"


class SwitchHelpMixin:
    """Mixin whose help shows a switch without a value: typer would write ``<bool>`` behind it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if isinstance(param, TyperOption) and param.is_flag:
                param.metavar = ""
        return params


class Subcommand(SwitchHelpMixin, TyperCommand):
    """A subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and note which help is asked for."""
        if LONG in args:
            place = args.index(LONG) + 1
            panel = _find_panel(args[place]) if place < len(args) else None
            if panel is not None:
                ctx.meta[_ASKED] = panel
                args = [*args[:place], *args[place + 1 :]]
        elif SHORT in args:
            ctx.meta[_ASKED] = SHORT
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments; while help is written, those that it shows."""
        shows: Callable[[Any], bool] = ctx.meta.get(_SHOWN, lambda param: True)
        return [param for param in super().get_params(ctx) if shows(param)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help that is asked for."""
        asked = ctx.meta.get(_ASKED)
        options = [param for param in self.params if isinstance(param, TyperOption)]
        main = MAIN_OPTIONS.get(self.name or "", ())
        if asked == SHORT and main:
            panels = dict.fromkeys(param.rich_help_panel for param in options if param.rich_help_panel)
            groups = ", ".join(_name_group(panel) for panel in Panel if panel in panels)
            of_group = f", `{LONG} GROUP` those of a group: {groups}" if groups else ""
            records = [param.get_help_record(ctx) for param in options if param.name in main]
            rows = [(name, _shorten(told)) for name, told in filter(None, records)]
            _write_screen(ctx, formatter, self.help, rows, f"`{LONG}` has all {len(options)} options{of_group}.")
            return
        if isinstance(asked, Panel):
            ctx.meta[_SHOWN] = lambda param: param in options and param.rich_help_panel == asked
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand, and say which of its options are from the configuration."""
        settle_defaults(ctx)
        return super().invoke(ctx)


class ShortHelpGroupMixin:
    """Mixin of a group whose ``-h`` shows the subcommands that matter most."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and note which help is asked for."""
        if args[:1] == [SHORT]:
            ctx.meta[_ASKED] = SHORT
        return super().parse_args(ctx, args)  # type: ignore[misc, no-any-return]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help that is asked for."""
        if ctx.meta.get(_ASKED) != SHORT:
            super().format_help(ctx, formatter)  # type: ignore[misc]
            return
        commands: dict[str, Any] = self.commands  # type: ignore[attr-defined]
        rows = [(name, _shorten(commands[name].help, MAX_LINE_CHARS)) for name in MAIN_COMMANDS]
        ends = f"`{LONG}` lists all {len(commands)} commands; `tracekit COMMAND {SHORT}` shows how one is used."
        _write_screen(ctx, formatter, f"{self.help}\n\n{EXAMPLE_OF_ALL}", rows, ends)  # type: ignore[attr-defined]


def _write_screen(ctx: Any, formatter: Any, text: str | None, rows: Sequence[tuple[str, str]], ends: str) -> None:
    """Write help of one screen: usage, a sentence, the rows, an example, and where the rest is."""
    paragraphs = [" ".join(one.split()) for one in (text or "").split("\n\n")]
    example = next((one for one in paragraphs if one.startswith(EXAMPLE)), "")
    formatter.write_usage(ctx.command_path, " ".join(ctx.command.collect_usage_pieces(ctx)))
    _write_paragraph(formatter, paragraphs[0])
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_dl(rows, col_max=MAX_NAME_CHARS)
    for one in (example, ends):
        _write_paragraph(formatter, one)


def _write_paragraph(formatter: Any, text: str) -> None:
    formatter.write_paragraph()
    formatter.write_text(text)


def _shorten(text: str, most: int = MAX_SENTENCE_CHARS) -> str:
    """Return the first sentence, and of one that is longer only its beginning."""
    sentence, _, _ = " ".join(text.split()).partition(". ")
    if len(sentence) > most:
        sentence = re.split(r"[;,:(] ?", sentence, maxsplit=1)[0]
    return sentence.strip().removesuffix(".") + "."


def _find_panel(word: str) -> Panel | None:
    return next((panel for panel in Panel if _name_group(panel) == word.lower()), None)


def _name_group(panel: Panel) -> str:
    """Return the word for a group: its enum's name, ``what-if`` of ``WHAT_IF``."""
    return panel.name.lower().replace("_", "-")
