"""Bars whose parts can be told from each other in any terminal."""

import re

from rich.console import Console

from tracekit.render.screen import TimeBars
from tracekit.reporting.sections.step import TimeBar

FAMILIES = ("gemm", "softmax", "reduction", "copy", "embedding", "other", "idle")


def draw_legend(**settings):
    """Return what each part of the legend looks like: its style's codes and its sign."""
    console = Console(width=200, force_terminal=True, **settings)
    with console.capture() as capture:
        console.print(TimeBars((TimeBar("measured", 700.0, tuple((family, 100.0) for family in FAMILIES)),)))
    legend = capture.get().splitlines()[1]
    return {
        family: re.search(rf"((?:\x1b\[[\d;]*m)*)(\S) (?:\x1b\[0m)?{family} ", legend).groups() for family in FAMILIES
    }


def test_no_two_parts_look_alike_in_sixteen_colours():
    shown = draw_legend(color_system="standard")
    assert len(set(shown.values())) == len(FAMILIES)


def test_patterns_stay_without_colours():
    shown = draw_legend(color_system="truecolor", no_color=True)
    signs = [shown[family][1] for family in FAMILIES]
    assert signs == ["█", "▓", "▒", "▚", "▄", "▌", "░"]
