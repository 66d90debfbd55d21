"""Which notes of a prediction matter most: the step time that each is about."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tracekit.messages import Message
from tracekit.messages import predictions as told
from tracekit.messages.model import Template
from tracekit.messages.traces import STEPS_OVERLAP

EffectFunction = Callable[[Mapping[str, Any], float], float]

EFFECTS: Mapping[Template, EffectFunction] = {
    told.ATTENTION_BUILT_FOR_A100: lambda values, _: values["saves_us"],
    told.COLLECTIVES_KEPT: lambda values, _: values["alone_us"],
    told.COLLECTIVES_SLOWER_THAN_LINKS: lambda values, _: values["beyond_us"],
    told.HOST_NOT_GIVEN: lambda values, _: values["longer_us"],
    told.HOST_STACK_CHANGES: lambda values, _: values["longer_us"],
    told.HOST_TIME_KEPT: lambda values, _: values["longer_us"],
    told.INSERTED_EXPOSED: lambda values, _: values["inserted_us"],
    told.INSERTED_OVERLAPPED: lambda values, _: values["exposed_us"],
    told.INSERTED_SLOW_KERNELS: lambda values, _: values["exposed_us"] + values["slower_us"],
    told.KERNELS_CONTEND: lambda values, _: abs(values["contended_us"] - values["apart_us"]),
    told.HOST_OPEN: lambda values, step_us: max(abs(values[f"same_{end}_us"] - step_us) for end in ("low", "high")),
    told.PROFILER_COST_KNOWN: lambda values, step_us: step_us - values["step_us"],
    told.PROFILER_COST_RECORDED: lambda values, step_us: values["host_pct"] / 100 * step_us,
    told.PROFILER_COST_UNKNOWN: lambda values, step_us: values["host_pct"] / 100 * step_us,
    told.STAGE_GATHERS_EXPOSED: lambda values, _: values["gather_us"],
    told.TARGET_PREDICTED_TOO_FAST: lambda values, step_us: abs(values["step_us"] - step_us),
    told.TARGET_PREDICTED_TOO_SLOW: lambda values, step_us: abs(values["step_us"] - step_us),
    told.UNKNOWN_TIME_VARIES: lambda values, _: values["shorter_us"],
}
"""By how much each note's subject changes the step in microseconds, from its values and the predicted step."""

DECISIVE = frozenset(
    (
        *(told.MEMORY_TOO_SMALL, told.DTYPE_UNSUPPORTED, told.GPU_UNLIKE_KNOWN, told.GPU_NAME_AMBIGUOUS, STEPS_OVERLAP),
        *(told.CLUSTER_PARTLY_USED, told.LINKS_ASSUMED),
    )
)
"""Notes that put the whole prediction in question."""
ALWAYS_SHOWN = frozenset(
    (
        *(told.CALIBRATION_USED, told.CALIBRATION_OF_OTHER_GPU),
        *(told.ATTENTION_OF_CAPTURE, told.QUANTIZATION_OF_CAPTURE, told.ENGINE_OF_CAPTURE),
        *(told.CACHE_OF_CAPTURE, told.UNLIKE_GPUS_PACE, told.UNLIKE_GPUS_BALANCED, told.UNLIKE_GPUS_BALANCE_GAINS),
    )
)
"""Notes that are shown however many there are: of what nobody asked for by name, and other figures would follow."""
BACKGROUND = frozenset((told.JOB_LAYOUT, told.MEMORY_FITS, told.EDITS_APPLIED))
"""Notes that change nothing."""


def compute_effect_us(note: Message, step_us: float) -> float | None:
    """Compute by how much a note's subject changes the predicted step; ``None`` where that can't be worked out.

    Args:
        note: The note.
        step_us: The predicted step.
    """
    effect = EFFECTS.get(note.template)
    return None if effect is None else effect(note.values, step_us)


def order_notes(notes: Iterable[Message], step_us: float) -> tuple[Message, ...]:
    """Order notes by how much they matter; arguments as for :func:`compute_effect_us`."""
    return tuple(sorted(notes, key=lambda note: find_place(note, step_us)))


def find_place(note: Message, step_us: float) -> tuple[int, float]:
    """Return what to sort a note by: decisive ones, those with an effect, those without, then what changes nothing."""
    effect_us = compute_effect_us(note, step_us)
    if note.template in DECISIVE:
        return 0, 0.0
    if note.template in BACKGROUND:
        return 3, 0.0
    return (2, 0.0) if effect_us is None else (1, -effect_us)
