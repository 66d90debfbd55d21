"""Where the time goes, as bars on a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

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
        signs = _signs(families(self.bars), coloured=console.color_system is not None)
        yield from (_bar(bar, cells / longest, label, signs) for bar in self.bars)
        yield from _legend(self.bars, signs, options.max_width)


def _signs(parts: Sequence[str], *, coloured: bool) -> dict[str, str]:
    """What each part is drawn with; without colours neighbours have other shades."""
    shades = "█" if coloured else "█▓▒"
    return {family: "░" if family == "idle" else shade for family, shade in zip(parts, cycle(shades), strict=False)}


def _bar(bar: TimeBar, cells_per_us: float, label_width: int, signs: Mapping[str, str]) -> Text:
    text = Text(f"{bar.label:<{label_width}} ", no_wrap=True)
    covered = drawn = 0.0
    for family, time_us in bar.parts:
        covered += time_us * cells_per_us
        cells = round(covered - drawn)
        text.append(signs[family] * cells, style=colour(family))
        drawn += cells
    return text.append(f" {duration(bar.step_time_us)}")


def _legend(bars: Sequence[TimeBar], signs: Mapping[str, str], width: int) -> Iterator[Text]:
    """The families that are visible in some bar, with their share of the first, none broken over lines."""
    shares = [{family: time_us / (bar.step_time_us or 1.0) for family, time_us in bar.parts} for bar in bars]
    line = Text(f"{bars[0].label}: ", style="dim")
    for family, sign in signs.items():
        if all(share.get(family, 0.0) < SMALL_PART for share in shares):
            continue
        told = Text.assemble((f"{sign} ", colour(family)), f"{family} {percent(100 * shares[0].get(family, 0.0))}")
        if line.cell_len + told.cell_len > width:
            yield line
            line = Text("  ")
        line = Text.assemble(line, told, "   ")
    yield line
