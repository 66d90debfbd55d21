"""Where the time goes, as bars on a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.render.colours import colour
from tracekit.reporting.sections.bars import TimeBar
from tracekit.units import duration, percent

BAR_WIDTH = 50
SMALL_PART = 0.02


def time_bars(bars: Sequence[TimeBar]) -> RenderableType:
    """A bar for each, on one scale, and what their colours mean."""
    longest = max(bar.step_time_us for bar in bars) or 1.0
    width = max(len(bar.label) for bar in bars)
    rows = [_bar(bar, BAR_WIDTH / longest, width) for bar in bars]
    return Group(*rows, _legend(bars))


def _bar(bar: TimeBar, cells_per_us: float, label_width: int) -> Text:
    text = Text(f"{bar.label:<{label_width}} ")
    covered = drawn = 0.0
    for family, time_us in bar.parts:
        covered += time_us * cells_per_us
        cells = round(covered - drawn)
        text.append(("░" if family == "idle" else "█") * cells, style=colour(family))
        drawn += cells
    return text.append(f" {duration(bar.step_time_us)}")


def _legend(bars: Sequence[TimeBar]) -> Text:
    """The families that are visible in some bar, with their share of the first."""
    first = bars[0]
    text = Text(f"{first.label}: ", style="dim")
    for family, time_us in first.parts:
        if time_us / (first.step_time_us or 1.0) >= SMALL_PART:
            text.append("░ " if family == "idle" else "█ ", style=colour(family))
            text.append(f"{family} {percent(100 * time_us / first.step_time_us)}   ")
    return text
