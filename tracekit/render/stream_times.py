"""Render the busy and idle time of each stream, and its launch queue."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.format import format_duration
from tracekit.reporting.sections.streams import StreamTime


def render_streams(streams: Sequence[StreamTime]) -> RenderableType:
    """Render one line per stream."""
    return Group(Text(), Text("streams", style="bold"), *map(_render_stream, streams))


def name_stream(stream: StreamTime) -> str:
    """Return the name of a stream: its rank (if recorded), GPU and stream number."""
    rank = "" if stream.rank is None else f"rank {stream.rank} "
    return f"{rank}GPU {stream.device} stream {stream.stream}"


def _render_stream(stream: StreamTime) -> Text:
    why = ", ".join(f"{cause.replace('_', ' ')} {format_duration(time_us)}" for cause, time_us in stream.causes)
    worked = f"  {name_stream(stream)}: works {format_duration(stream.busy_us)}, idle {format_duration(stream.idle_us)}"
    queued = f", {stream.queued:.1f} queued (at most {stream.most_queued})" if stream.most_queued else ""
    return Text.assemble(worked + queued, (f": {why}" if why else "", "dim"))
