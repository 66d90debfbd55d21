"""Why each stream was idle, on the screen."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.reporting.sections.streams import StreamTime
from tracekit.units import duration


def screen(streams: Sequence[StreamTime]) -> RenderableType:
    """A line for each stream."""
    return Group(Text(), Text("streams", style="bold"), *map(_line, streams))


def named(stream: StreamTime) -> str:
    """Where it is, where there are several such places."""
    rank = "" if stream.rank is None else f"rank {stream.rank} "
    return f"{rank}GPU {stream.device} stream {stream.stream}"


def _line(stream: StreamTime) -> Text:
    why = ", ".join(f"{cause.replace('_', ' ')} {duration(time_us)}" for cause, time_us in stream.causes)
    worked = f"  {named(stream)}: works {duration(stream.busy_us)}, idle {duration(stream.idle_us)}"
    return Text.assemble(worked, (f": {why}" if why else "", "dim"))
