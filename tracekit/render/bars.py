"""Where the time goes, as bars on a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from tracekit.render.colours import colour
from tracekit.reporting.sections.bars import TimeBar, families
from tracekit.units import duration, percent

BAR_WIDTH = 50
SMALL_PART = 0.02


@dataclass(frozen=True, slots=True)
class TimeBars:
    """A bar for each, on one scale that fits the screen, and what their colours mean."""

    bars: Sequence[TimeBar]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        longest = max(bar.step_time_us for bar in self.bars) or 1.0
        label = max(len(bar.label) for bar in self.bars)
        figure = max(len(duration(bar.step_time_us)) for bar in self.bars)
        cells = max(min(BAR_WIDTH, options.max_width - label - figure - 2), 1)
        yield from (_bar(bar, cells / longest, label) for bar in self.bars)
        yield _legend(self.bars)


def _bar(bar: TimeBar, cells_per_us: float, label_width: int) -> Text:
    text = Text(f"{bar.label:<{label_width}} ", no_wrap=True)
    covered = drawn = 0.0
    for family, time_us in bar.parts:
        covered += time_us * cells_per_us
        cells = round(covered - drawn)
        text.append(("░" if family == "idle" else "█") * cells, style=colour(family))
        drawn += cells
    return text.append(f" {duration(bar.step_time_us)}")


def _legend(bars: Sequence[TimeBar]) -> Text:
    """The families that are visible in some bar, with their share of the first."""
    shares = [{family: time_us / (bar.step_time_us or 1.0) for family, time_us in bar.parts} for bar in bars]
    text = Text(f"{bars[0].label}: ", style="dim")
    for family in families(bars):
        if any(share.get(family, 0.0) >= SMALL_PART for share in shares):
            text.append("░ " if family == "idle" else "█ ", style=colour(family))
            text.append(f"{family} {percent(100 * shares[0].get(family, 0.0))}   ")
    return text
