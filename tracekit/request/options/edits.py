"""Options of what changes before a run is reported or predicted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tracekit.request.option import Option, Panel, Request, split_values
from tracekit.request.options.times import parse_time_us


@dataclass(frozen=True, kw_only=True)
class EditOptions(Request):
    """What changes in the run before it is reported or predicted."""

    panel = Panel.WHAT_IF

    what_if: Annotated[
        str | Sequence[str],
        Option(
            "Replay with a change, such as 'scale(family=gemm, 0.5)' or 'no-sync(aten::item)'; several in order.",
            "What-if edits",
            "EDIT",
            separator="\n",
        ),
    ] = ()
    host_speed: Annotated[
        float | str | None,
        Option(
            "How many times as fast the CPU is, such as 1.3 or python=1.3,op=1.2; default unchanged.",
            "Host speed",
            "SPEED",
        ),
    ] = None
    unprofiled_step: Annotated[
        str | None,
        Option(
            "What a step takes without the profiler, such as 12.3ms: takes the profiler's overhead out.",
            "Step time without the profiler",
            "TIME",
        ),
    ] = None

    @property
    def edits(self) -> list[str]:
        """The what-if edits in order, the host's speed first."""
        from tracekit.whatif.registry import parse_edits

        speed = self.host_speed
        return parse_edits(split_values(self.what_if), f"{speed:.15g}" if isinstance(speed, int | float) else speed)

    @property
    def unprofiled_step_us(self) -> float | None:
        """Step time without the profiler."""
        if self.unprofiled_step is None:
            return None
        return parse_time_us(self.unprofiled_step)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        _ = self.edits, self.unprofiled_step_us
