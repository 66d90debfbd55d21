"""Render captured steps as text and JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.capturing.steps import CapturedStep
from tracekit.format import format_bytes, format_duration
from tracekit.render.dump import dump_json
from tracekit.render.grid import make_plain_table

MAX_FAMILIES = 4
"""That are shown of each step."""


@dataclass(frozen=True)
class CapturedFacts:
    """What is shown of a captured program itself.

    Attributes:
        program: Its name.
        parameters: Number of its parameters.
        parameter_bytes: Their size.
        peak_bytes: The most that its tensors hold at once.
        kernels: Kernels of a step.
    """

    program: str
    parameters: int
    parameter_bytes: int
    peak_bytes: int
    kernels: int


def serialize_captured(facts: CapturedFacts, steps: Sequence[CapturedStep]) -> str:
    """Return a program's steps as JSON."""
    return dump_json({**asdict(facts), "targets": [asdict(one) | {"host_bound": one.is_host_bound} for one in steps]})


def render_captured(facts: CapturedFacts, steps: Sequence[CapturedStep]) -> RenderableType:
    """Render a table with one row per GPU, and what the steps rest on."""
    columns = make_plain_table(gap=1)
    columns.add_column("GPU", style="bold", no_wrap=True)
    for heading in ("step", "90 % interval", "kernels", "idle", "energy", "power"):
        columns.add_column(heading, justify="right", no_wrap=True)
    for one in steps:
        columns.add_row(
            one.gpu,
            format_duration(one.step_us),
            f"{format_duration(one.low_us)} to {format_duration(one.high_us)}",
            format_duration(one.kernels_us),
            format_duration(one.idle_us),
            f"{one.joules:.3g} J",
            f"{one.power_w:.0f} W",
        )
    size = f"{facts.parameters:,} parameters, {format_bytes(facts.parameter_bytes)}; " if facts.parameters else ""
    held = f"tensors of at least {format_bytes(facts.peak_bytes)} at once"
    return Group(
        Text(f"{facts.program}: {size}{facts.kernels:,} kernels a step, {held}"),
        Text(),
        columns,
        Text(),
        *(Text(line) for one in steps for line in _describe_step(one)),
        Text("No trace was measured: times follow from shapes and the GPUs' laws, the CPU is the usual one.", "dim"),
    )


def _describe_step(one: CapturedStep) -> Iterator[str]:
    largest = ", ".join(f"{family} {100 * us / one.kernels_us:.0f} %" for family, us in one.families[:MAX_FAMILIES])
    limit = "the CPU limits it: try a CUDA graph or torch.compile" if one.is_host_bound else "the GPU limits it"
    clock = f"; its power lowers the clock to {one.clock_pct:.0f} %" if one.clock_pct < 98 else ""
    yield f"{one.gpu}: {largest}; {limit}{clock}"
    if not one.has_room:
        yield f"{one.gpu}: its memory is too small for the tensors"
    if one.unknown_pct >= 1:
        yield f"{one.gpu}: {one.unknown_pct:.0f} % of the kernels are of unknown work and count as no time"
