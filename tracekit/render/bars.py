"""Bars on a terminal that show where the step's time goes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.color import Color, ColorSystem
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from tracekit.format import format_duration, format_percent
from tracekit.render.colours import get_family_colour
from tracekit.reporting.sections.bars import TimeBar, list_parts

MAX_BAR_CHARS = 50
MIN_VISIBLE_FRACTION = 0.02
SHADES = "█▓▒▚▄▌▞"
COLOUR_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
    "windows": ColorSystem.WINDOWS,
}


@dataclass(frozen=True, slots=True)
class TimeBars:
    """Bars on one common scale that fits the screen, with a legend of their colours."""

    bars: Sequence[TimeBar]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        longest = max(bar.step_time_us for bar in self.bars) or 1.0
        label = max(len(bar.label) for bar in self.bars)
        figure = max(len(format_duration(bar.step_time_us)) for bar in self.bars)
        cells = max(min(MAX_BAR_CHARS, options.max_width - label - figure - 2), 1)
        signs = _choose_fill_characters(list_parts(self.bars), console)
        yield from (_draw_bar(bar, cells / longest, label, signs) for bar in self.bars)
        yield from _draw_legend(self.bars, signs, options.max_width)


def _choose_fill_characters(parts: Sequence[str], console: Console) -> dict[str, str]:
    """Choose the fill character of each part: parts that this terminal shows in one colour get different shades."""
    alike: Counter[object] = Counter()
    signs = {}
    for part in parts:
        colour = _find_shown_colour(part, console)
        signs[part] = "░" if part == "idle" else SHADES[alike[colour] % len(SHADES)]
        alike[colour] += part != "idle"
    return signs


def _find_shown_colour(part: str, console: Console) -> tuple[str, ...] | None:
    """Return the codes by which a terminal shows a part's colour; None without colours."""
    if console.no_color or console.color_system is None:
        return None
    return Color.parse(get_family_colour(part)).downgrade(COLOUR_SYSTEMS[console.color_system]).get_ansi_codes()


def _draw_bar(bar: TimeBar, cells_per_us: float, label_width: int, signs: Mapping[str, str]) -> Text:
    # Rich's own bars have a single part.
    text = Text(f"{bar.label:<{label_width}} ", no_wrap=True)
    covered = drawn = 0.0
    for family, time_us in bar.parts:
        covered += time_us * cells_per_us
        cells = round(covered - drawn)
        text.append(signs[family] * cells, style=get_family_colour(family))
        drawn += cells
    return text.append(f" {format_duration(bar.step_time_us)}")


def _draw_legend(bars: Sequence[TimeBar], signs: Mapping[str, str], width: int) -> Iterator[Text]:
    """Yield the legend: families visible in some bar with their share of the first; no entry is split over lines."""
    shares = [{family: time_us / (bar.step_time_us or 1.0) for family, time_us in bar.parts} for bar in bars]
    line = Text(f"{bars[0].label}: ", style="dim")
    for family, sign in signs.items():
        if all(share.get(family, 0.0) < MIN_VISIBLE_FRACTION for share in shares):
            continue
        told = Text.assemble(
            (f"{sign} ", get_family_colour(family)), f"{family} {format_percent(100 * shares[0].get(family, 0.0))}"
        )
        if line.cell_len + told.cell_len > width:
            yield line
            line = Text("  ")
        line = Text.assemble(line, told, "   ")
    yield line
