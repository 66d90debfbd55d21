"""Find the largest batch of a rank that a target's memory holds, and layouts that hold a job which doesn't fit."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import inf

from tracekit.errors import TracekitError
from tracekit.messages import Message
from tracekit.messages import layouts as messages
from tracekit.parallelism.layout import Layout, LayoutError, LayoutRequest, apply_request
from tracekit.prediction.batch import StepBatch
from tracekit.prediction.model import Target
from tracekit.prediction.predictor import Predictor
from tracekit.program import Program

MAX_BATCH_FACTOR = 1 << 16
"""Largest multiple of the batch that is tried."""
TRIED_SPLITS = (1, 2, 4, 8)
"""Tensor-parallel ranks and stages that are tried where none are asked for."""
MAX_PROPOSALS = 2


def count_rank_samples(program: Program, processed: StepBatch | None, old: Layout) -> int:
    """Count the samples of a rank's step, so that any number of them can be tried; 1 where they aren't known.

    Args:
        program: The program.
        processed: What all ranks process in a step.
        old: Layout of the trace.
    """
    facts = program.trace.capture_facts
    known = facts.batch // facts.micro_batches if facts else 0
    is_counted = processed is not None and processed.unit == "samples"
    counted = processed.size / old.dp / processed.passes if processed and is_counted else 0.0
    return known or (int(counted) if counted == int(counted) else 0) or 1


def find_largest_batch(predictor: Predictor, target: Target, samples: int) -> int:
    """Find the most samples of a rank that surely fit; 0 if not even one does.

    Args:
        predictor: Predicts the job.
        target: The target, with its layout.
        samples: Those of the traced batch.

    Raises:
        TracekitError: The target can't be predicted.
    """

    def fits(number: int) -> bool:
        return predictor.fits(replace_batch(target, number / samples))

    most, fails = (samples, 2 * samples) if fits(samples) else (0, samples)
    while most and fails <= MAX_BATCH_FACTOR * samples and fits(fails):
        most, fails = fails, 2 * fails
    while fails - most > 1:
        middle = (most + fails) // 2
        most, fails = (middle, fails) if fits(middle) else (most, middle)
    return most


def replace_batch(target: Target, factor: float) -> Target:
    """Return the target with another batch.

    Args:
        target: The target.
        factor: Batch relative to the trace's.
    """
    return replace(target, layout=replace(target.layout or Layout(), batch=factor))


def resolve_largest_batch(predictor: Predictor, target: Target) -> tuple[Target, Message | None]:
    """Return the target with the largest batch that surely fits in place of an infinite one, and a note on it.

    Raises:
        LayoutError: No batch surely fits.
    """
    layout = target.layout
    if layout is None or layout.batch != inf:
        return target, None
    program, traced = predictor.job.program, predictor.job.layout or Layout()
    samples = count_rank_samples(program, predictor.job.batch, traced)
    largest = find_largest_batch(predictor, target, samples)
    if not largest:
        raise LayoutError(_explain_no_batch(predictor, replace_batch(target, 1 / samples)))
    return replace_batch(target, largest / samples), messages.BATCH_LARGEST(target=target.label, samples=largest)


def _explain_no_batch(predictor: Predictor, target: Target) -> Message:
    memory = predictor.judge_memory(target)
    if memory.min_bytes is None or memory.max_bytes is None:
        return messages.BATCH_FIT_UNKNOWN(target=target.label, reason=memory.reason)
    proposal = propose_layouts(predictor, target)
    return messages.BATCH_FITS_NOWHERE_HERE(target=target.label, reason=memory.reason, proposal=proposal)


def propose_layouts(predictor: Predictor, target: Target) -> Message:
    """Propose layouts of a training job over as many GPUs that surely hold it, those that change least first."""
    found = [*islice(_list_fitting(predictor, target), MAX_PROPOSALS)]
    if not found:
        return messages.MEMORY_FITS_NO_LAYOUT()
    return messages.MEMORY_FITS_AS(layouts=[one.parallelism for one in found])


def _list_fitting(predictor: Predictor, target: Target) -> Iterator[Layout]:
    """List other layouts over the GPUs of a target's cluster that surely hold a job of one traced rank."""
    old, now = predictor.job.layout, target.layout or Layout()
    if old is None or old.world_size > 1 or target.cluster is None:
        return
    gpus, node = max(now.world_size, target.cluster.gpus), target.cluster.gpus_per_node
    splits = [(tp, pp, fsdp) for pp in TRIED_SPLITS for tp in TRIED_SPLITS for fsdp in (None, True)]
    for tp, pp, fsdp in splits:
        if tp > node or gpus % (tp * pp) or (fsdp and gpus == tp * pp):
            continue
        change = LayoutRequest(world_size=gpus, tp=tp, pp=pp, fsdp=fsdp, batch=now.batch)
        try:
            layout = apply_request(old, change)
            if predictor.fits(replace(target, layout=layout)):
                yield layout
        except TracekitError:
            continue
