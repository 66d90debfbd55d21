"""Render captured steps as text and JSON."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from tracekit.capturing.steps import CapturedStep
from tracekit.format import format_bytes, format_duration, format_interval
from tracekit.messages.predictions import CLOCK_LOWERED
from tracekit.prediction.notes import note_captured_program
from tracekit.render.json import dump_json
from tracekit.render.screen import Listing, Screen

MAX_FAMILIES = 4
"""Largest kernel families named for each step."""


def serialize_captured(steps: Sequence[CapturedStep]) -> str:
    """Return a program's steps as JSON."""
    program = steps[0].program
    facts = {
        "program": program.name,
        "parameters": program.facts.parameters,
        "parameter_bytes": program.facts.parameter_bytes,
        "kernels": steps[0].prediction.kernels.height,
    }
    return dump_json({**facts, "targets": [_list_values(one) for one in steps]})


def _list_values(one: CapturedStep) -> dict[str, object]:
    prediction, facts = one.prediction, one.program.facts
    return {
        "gpu": prediction.gpu,
        "step_us": prediction.step.step_time_us,
        "low_us": prediction.low_us,
        "high_us": prediction.high_us,
        "kernels_us": prediction.step.kernel_time_us,
        "idle_us": prediction.step.idle_us,
        "host_bound": one.is_host_bound,
        "unknown_pct": one.unknown_pct,
        "joules": prediction.energy.joules,
        "power_w": prediction.energy.power_w,
        "batch": facts.batch or None,
        "sequence_tokens": one.sequence_tokens,
        "tokens_per_s": one.tokens_per_s,
        "peak_bytes": facts.peak_bytes,
        "has_room": prediction.memory.fits is not False,
        "families": dict(one.list_families()),
        "notes": prediction.notes,
    }


def render_captured(steps: Sequence[CapturedStep]) -> Screen:
    """Render a table with one row per GPU, and what the steps rest on."""
    program, kernels = steps[0].program, steps[0].prediction.kernels.height
    facts = program.facts
    has_batch, has_tokens = any(one.program.facts.batch for one in steps), any(one.tokens_per_s for one in steps)
    known = ("step", "90 % interval", "kernels", "tensors", "power")
    numbers = (*["batch"] * has_batch, *known, *["tokens/s"] * has_tokens)
    size = f"{facts.parameters:,} parameters, {format_bytes(facts.parameter_bytes)}; " if facts.parameters else ""
    lines = [
        *(line for one in steps for line in _describe_step(one)),
        *map(str, note_captured_program(steps[0].prediction.program)),
    ]
    return Screen(
        tables=[
            Text(f"{program.name}: {size}{kernels:,} kernels a step, captured without a GPU"),
            Text(),
            Listing(("GPU", *numbers), (tuple(_list_cells(one, has_batch=has_batch)) for one in steps), right=numbers),
            Text(),
            *map(Text, lines),
        ],
        notes=[
            "No trace was measured: times follow from shapes and the GPUs' laws, the CPU is the usual one; workspaces "
            "need memory beside the tensors."
        ],
    )


def _list_cells(one: CapturedStep, *, has_batch: bool) -> Iterator[str]:
    prediction, facts = one.prediction, one.program.facts
    yield prediction.gpu
    if has_batch:
        yield f"{facts.batch:,}"
    yield format_duration(prediction.step.step_time_us)
    yield format_interval(prediction.low_us, prediction.high_us, prediction.step.step_time_us)
    yield format_duration(prediction.step.kernel_time_us)
    yield from (format_bytes(facts.peak_bytes), f"{prediction.energy.power_w:.0f} W")
    if one.tokens_per_s:
        yield f"{one.tokens_per_s:,.0f}"


def _describe_step(one: CapturedStep) -> Iterator[str]:
    prediction, families = one.prediction, one.list_families()
    total_us = sum(us for _, us in families)
    largest = ", ".join(f"{family} {100 * us / total_us:.0f} %" for family, us in families[:MAX_FAMILIES])
    limit = "the CPU limits it: try a CUDA graph or torch.compile" if one.is_host_bound else "the GPU limits it"
    lowered = [note for note in prediction.notes if note.template is CLOCK_LOWERED]
    clock = f"; its power lowers the clock to {lowered[0].values['clock_pct']:.0f} %" if lowered else ""
    yield f"{prediction.gpu}: {largest}; {limit}{clock}; {prediction.energy.joules:.3g} J"
    if one.sequence_tokens:
        yield f"{prediction.gpu}: sequences of {one.sequence_tokens:,} tokens"
    if prediction.memory.fits is False:
        yield f"{prediction.gpu}: its memory is too small for the tensors"
    if one.unknown_pct >= 1:
        yield f"{prediction.gpu}: {one.unknown_pct:.0f} % of the kernels are of unknown work and count as 2 µs each"
