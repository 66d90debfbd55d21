"""What help shows: ``-h`` the options that matter most, ``--help`` all, ``--help GROUP`` those of a group."""

from collections.abc import Callable
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
        asked, options = ctx.meta.get(_ASKED), [param for param in self.params if isinstance(param, TyperOption)]
        main = MAIN_OPTIONS.get(self.name or "", ())
        if asked == SHORT and main:
            ctx.meta[_SHOWN] = lambda param: param in self.params and (param not in options or param.name in main)
            panels = dict.fromkeys(param.rich_help_panel for param in options if param.rich_help_panel)
            groups = ", ".join(_name_group(panel) for panel in Panel if panel in panels)
            of_group = f", those of a group with `{LONG} GROUP`: {groups}" if groups else ""
            self.epilog = f"`tracekit {self.name} {LONG}` shows all {len(options)} options{of_group}."
        elif isinstance(asked, Panel):
            ctx.meta[_SHOWN] = lambda param: param in options and param.rich_help_panel == asked
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand, and say which of its options are from the configuration."""
        settle_defaults(ctx)
        return super().invoke(ctx)


def _find_panel(word: str) -> Panel | None:
    return next((panel for panel in Panel if _name_group(panel) == word.lower()), None)


def _name_group(panel: Panel) -> str:
    """Return the word for a group: its enum's name, ``what-if`` of ``WHAT_IF``."""
    return panel.name.lower().replace("_", "-")
