"""The picture of a step's timelines: measured above predicted, each stream a lane of blocks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from tracekit.format import format_duration
from tracekit.render.colours import get_family_colour
from tracekit.reporting.model import Report
from tracekit.reporting.sections.timeline import PathPart, StepTimeline, TimelineBlock

LABEL_PX = 150
"""Width of the lanes' names."""
WIDTH_PX = 810
"""Width of the longest step."""
HEADING_PX = 22
PATH_PX = 10
PATH_LINE_PX = 4
LANE_PX = 22
BLOCK_PX = 16
"""Height of a block of a busy stream; of one that is a quarter busy, a quarter of that."""
QUARTERS = 4
GAP_PX = 16
MAX_TIME_RATIO = 4.0
"""Ratio of two steps above which each is drawn as wide as the picture: the short one would be a sliver."""


@dataclass(frozen=True, slots=True)
class DrawnPath:
    """All blocks of one kernel in a lane.

    Attributes:
        kernel: Place in the report's kernels; empty of a kernel that only the target has.
        title: What it is.
        d: The blocks, as SVG's ``path`` takes them.
    """

    kernel: int | str
    title: str
    d: str


@dataclass(frozen=True, slots=True)
class DrawnLane:
    """One stream.

    Attributes:
        y: Its top within the timeline.
        families: Colour and paths of each family.
    """

    name: str
    y: int
    families: tuple[tuple[str, tuple[DrawnPath, ...]], ...]


@dataclass(frozen=True, slots=True)
class DrawnTimeline:
    """One timeline.

    Attributes:
        title: Its label, the answer's time of a step there, and that of the drawn one where it differs.
        path: Resources on the critical path, each with its parts as SVG's ``path`` takes them.
        scale: Width of a part of the step's time.
        here_scale: The same of the measured timeline that stands above this one.
    """

    title: str
    label: str
    path: tuple[tuple[str, str], ...]
    lanes: tuple[DrawnLane, ...]
    height: int
    scale: float
    here_scale: float


def draw_timelines(report: Report) -> list[DrawnTimeline]:
    """Draw the timelines that are compared: the measured one, then those of the targets, best first; or none."""
    section = report.timelines
    if section is None:
        return []
    first, *others = (*([section.measured] if report.has_baseline else []), *section.predicted)
    names = [kernel.op or kernel.name for kernel in report.kernels]
    steps_us = {target.label: target.step.step_time_us for target in report.targets}
    steps_us[section.measured.label] = report.source.step_time_us
    titles = [_title(one, steps_us.get(one.label, one.time_us)) for one in (first, *others)]
    named = names if report.has_baseline else []
    return [
        _draw(first, first, names, titles[0]),
        *(_draw(one, first, named if place == 0 else [], titles[1 + place]) for place, one in enumerate(others)),
    ]


def _title(timeline: StepTimeline, step_us: float) -> str:
    """Return a timeline's label and the step time that the answer has, which is that of several steps."""
    answered, drawn = format_duration(step_us), format_duration(timeline.time_us)
    return f"{timeline.label}, {answered}" + (f" (drawn: {drawn})" if drawn != answered else "")


def _draw(timeline: StepTimeline, measured: StepTimeline, names: list[str], title: str) -> DrawnTimeline:
    longest = max(timeline.time_us, measured.time_us)
    is_alike = longest <= MAX_TIME_RATIO * min(timeline.time_us, measured.time_us)
    scale, here_scale = (
        WIDTH_PX / one.columns * (one.time_us / longest if is_alike else 1.0) for one in (timeline, measured)
    )
    top = HEADING_PX + PATH_PX
    return DrawnTimeline(
        title=title,
        label=timeline.label,
        path=tuple(_draw_critical_path(timeline.path)),
        lanes=tuple(
            DrawnLane(lane.name, top + LANE_PX * place, tuple(_draw_families(lane.blocks, names)))
            for place, lane in enumerate(timeline.lanes)
        ),
        height=top + LANE_PX * len(timeline.lanes) + GAP_PX,
        scale=round(scale, 4),
        here_scale=round(here_scale, 4),
    )


def _draw_critical_path(parts: Iterable[PathPart]) -> Iterator[tuple[str, str]]:
    for resource, members in groupby(sorted(parts, key=lambda part: part.on), key=lambda part: part.on):
        yield resource, "".join(f"M{part.begin} 0h{part.length}v{PATH_LINE_PX}h-{part.length}z" for part in members)


def _draw_families(blocks: Iterable[TimelineBlock], names: list[str]) -> Iterator[tuple[str, tuple[DrawnPath, ...]]]:
    ordered = sorted(blocks, key=lambda block: (block.family, -1 if block.kernel is None else block.kernel))
    for family, members in groupby(ordered, key=lambda block: block.family):
        kernels = groupby(members, key=lambda block: block.kernel)
        yield get_family_colour(family), tuple(_draw_path(kernel, family, rows, names) for kernel, rows in kernels)


def _draw_path(kernel: int | None, family: str, blocks: Iterable[TimelineBlock], names: list[str]) -> DrawnPath:
    rectangles = "".join(map(_draw_block, blocks))
    if kernel is None:
        return DrawnPath("", f"{family}, on the target alone", rectangles)
    return DrawnPath(kernel, names[kernel] if names else "", rectangles)


def _draw_block(block: TimelineBlock) -> str:
    height = BLOCK_PX * block.quarters // QUARTERS
    return f"M{block.begin} {BLOCK_PX - height}h{block.length}v{height}h-{block.length}z"
