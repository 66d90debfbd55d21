"""Render the busy and idle time of each stream, and its launch queue."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.format import format_count, format_duration, format_number
from tracekit.reporting.sections.copies import CopyTime
from tracekit.reporting.sections.streams import StreamTime


def render_streams(streams: Sequence[StreamTime]) -> RenderableType:
    """Render one line per stream."""
    return Group(Text(), Text("streams", style="bold"), *map(_render_stream, streams))


def render_copies(copies: Sequence[CopyTime]) -> RenderableType:
    """Render one line per kind of copies."""
    return Group(Text(), Text("copies", style="bold"), *map(_render_copy, copies))


def _render_copy(copy: CopyTime) -> Text:
    ends = f" ({copy.memories})" if copy.memories else ""
    limit = f" of {format_number(copy.limit_gbps)}" if copy.limit_gbps else ""
    rate = "" if copy.gbps is None else f", {format_number(copy.gbps)}{limit} GB/s"
    return Text(f"  {copy.kind}{ends}: {format_count(copy.count)} in {format_duration(copy.time_us)}{rate}")


def name_stream(stream: StreamTime) -> str:
    """Return the name of a stream: its rank (if recorded), GPU and stream number."""
    rank = "" if stream.rank is None else f"rank {stream.rank} "
    return f"{rank}GPU {stream.device} stream {stream.stream}"


def _render_stream(stream: StreamTime) -> Text:
    why = ", ".join(f"{cause.replace('_', ' ')} {format_duration(time_us)}" for cause, time_us in stream.causes)
    worked = f"  {name_stream(stream)}: works {format_duration(stream.busy_us)}, idle {format_duration(stream.idle_us)}"
    queued = f", {stream.queued:.1f} queued (at most {stream.most_queued})" if stream.most_queued else ""
    return Text.assemble(worked + queued, (f": {why}" if why else "", "dim"))
