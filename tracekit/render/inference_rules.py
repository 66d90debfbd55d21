"""Render the list of inference rules."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.render.grid import make_plain_table
from tracekit.rules import Rule


def append_rules(shown: RenderableType, rules: Sequence[Rule], without: Sequence[str]) -> RenderableType:
    """Append the rules to a screen: name, what each infers, and its evidence."""
    table = make_plain_table()
    table.add_column("rule")
    table.add_column("infers, and evidence")
    for rule in rules:
        name = f"{rule.name} (off)" if rule.name in without else rule.name
        table.add_row(name, f"{rule.summary} {rule.evidence}")
    return Group(shown, Text(), Text("inference rules (--without-rule)", style="bold"), table)
