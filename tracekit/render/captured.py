"""Render captured steps as text and JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.capturing.program import CapturedProgram
from tracekit.capturing.steps import CapturedStep
from tracekit.format import format_bytes, format_duration
from tracekit.render.dump import dump_json
from tracekit.render.grid import make_plain_table

MAX_FAMILIES = 4
"""That are shown of each step."""
MIN_CLOCK_PCT = 98.0
"""A clock above that isn't mentioned."""


def serialize_captured(program: CapturedProgram, steps: Sequence[CapturedStep]) -> str:
    """Return a program's steps as JSON."""
    facts = {
        "program": program.name,
        "parameters": program.parameters,
        "parameter_bytes": program.parameter_bytes,
        "kernels": program.kernels.height,
    }
    return dump_json({**facts, "targets": [asdict(one) | {"host_bound": one.is_host_bound} for one in steps]})


def render_captured(program: CapturedProgram, steps: Sequence[CapturedStep]) -> RenderableType:
    """Render a table with one row per GPU, and what the steps rest on."""
    columns = make_plain_table(gap=1)
    columns.add_column("GPU", style="bold", no_wrap=True)
    batched = any(one.batch for one in steps)
    for heading in (*(("batch",) if batched else ()), "step", "90 % interval", "kernels", "tensors", "power"):
        columns.add_column(heading, justify="right", no_wrap=True)
    if batched:
        columns.add_column("tokens/s", justify="right", no_wrap=True)
    for one in steps:
        columns.add_row(*_list_cells(one))
    size = f"{program.parameters:,} parameters, {format_bytes(program.parameter_bytes)}; " if program.parameters else ""
    return Group(
        Text(f"{program.name}: {size}{program.kernels.height:,} kernels a step, captured without a GPU"),
        Text(),
        columns,
        Text(),
        *(Text(line) for one in steps for line in _describe_step(one)),
        Text(
            "No trace was measured: times follow from shapes and the GPUs' laws, the CPU is the usual one; workspaces "
            "need memory beside the tensors.",
            "dim",
        ),
    )


def _list_cells(one: CapturedStep) -> Iterator[str]:
    yield one.gpu
    if one.batch:
        yield f"{one.batch:,}"
    yield from (format_duration(one.step_us), f"{format_duration(one.low_us)} to {format_duration(one.high_us)}")
    yield from (format_duration(one.kernels_us), format_bytes(one.peak_bytes), f"{one.power_w:.0f} W")
    if one.tokens_per_s:
        yield f"{one.tokens_per_s:,.0f}"


def _describe_step(one: CapturedStep) -> Iterator[str]:
    largest = ", ".join(f"{family} {100 * us / one.kernels_us:.0f} %" for family, us in one.families[:MAX_FAMILIES])
    limit = "the CPU limits it: try a CUDA graph or torch.compile" if one.is_host_bound else "the GPU limits it"
    clock = f"; its power lowers the clock to {one.clock_pct:.0f} %" if one.clock_pct < MIN_CLOCK_PCT else ""
    yield f"{one.gpu}: {largest}; {limit}{clock}; {one.joules:.3g} J"
    if not one.has_room:
        yield f"{one.gpu}: its memory is too small for the tensors"
    if one.unknown_pct >= 1:
        yield f"{one.gpu}: {one.unknown_pct:.0f} % of the kernels are of unknown work and count as no time"
