"""A serving engine's batches in the words of serving: time to first token, time per output token, tokens a second."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tracekit.ingest.batches import find_requests
from tracekit.messages import Message
from tracekit.messages import serving as told
from tracekit.parallelism.layout import LayoutRequest
from tracekit.parallelism.process_groups import infer_layout_if_needed
from tracekit.prediction import Prediction
from tracekit.prediction.batch_kinds import separate_batches
from tracekit.reporting.sections.figure import Figure
from tracekit.reporting.sections.source import label_times
from tracekit.run import MeasuredRun

PREFILL_KINDS, DECODE_KINDS = ("prefill", "mixed"), ("decode", "mixed")


@dataclass(frozen=True, slots=True)
class ServingSpeed:
    """What batches of one kind take, measured or on a target.

    Attributes:
        label: ``measured``, or the target.
        gpus: GPUs that serve together.
        batch_us: Time of a batch.
        first_token_us: Time to first token; null for batches without prompts.
        output_token_us: Time per output token; null for batches without running sequences.
        tokens_per_s: Tokens of such batches, one after the other, in a second: of prompts, and of output.
        tokens_per_s_per_gpu: The same for one GPU.
        tokens_per_s_per_user: Output tokens of one sequence in a second; null for batches without running sequences.
    """

    label: str
    gpus: int
    batch_us: Figure
    first_token_us: Figure | None
    output_token_us: Figure | None
    tokens_per_s: Figure
    tokens_per_s_per_gpu: Figure
    tokens_per_s_per_user: Figure | None


@dataclass(frozen=True, slots=True)
class ServedBatches:
    """The batches of one kind.

    Attributes:
        kind: ``prefill``, ``decode``, ``mixed``, or the engine's own word.
        batches: How many the median is over.
        tokens: Tokens of a batch.
        prompts: Prompts in a batch; null where the engine doesn't tell.
        sequences: Running sequences in a batch, likewise.
        speeds: The measured batch, then that on each target.
    """

    kind: str
    batches: int
    tokens: float
    prompts: float | None
    sequences: float | None
    speeds: tuple[ServingSpeed, ...]


@dataclass(frozen=True, slots=True)
class ServingTimes:
    """The batches of a serving engine by kind.

    Attributes:
        kinds: Batches with prompts first.
        notes: What the figures assume, and what the trace doesn't tell.
    """

    kinds: tuple[ServedBatches, ...]
    notes: tuple[Message, ...]


def build_serving_times(
    run: MeasuredRun, targets: Sequence[Prediction], other_batches: Mapping[str, Sequence[Prediction]]
) -> ServingTimes | None:
    """Build the section; None if no serving engine marked its batches.

    Args:
        run: The measured run.
        targets: Its predictions.
        other_batches: The predictions of the batches of other kinds than the measured steps, by kind.
    """
    kinds = separate_batches(run)
    if not kinds:
        return None
    layout = infer_layout_if_needed(run.program, LayoutRequest())
    replicas = layout.dp if layout else 1
    built = tuple(
        _build_batches(kind, of_kind, targets if of_kind is run else other_batches.get(kind, ()), replicas)
        for kind, of_kind in kinds.items()
    )
    return ServingTimes(built, tuple(_write_notes(built)))


def _build_batches(kind: str, run: MeasuredRun, targets: Sequence[Prediction], replicas: int) -> ServedBatches:
    """Build the batches of one kind; counts are of all replicas together."""
    requests = find_requests(run.trace)
    counts = run.chosen_steps.join(requests, on="start_ns", how="left").select(
        pl.col("tokens", "prompts", "sequences").median().cast(pl.Float64) * replicas
    )
    tokens, prompts, sequences = counts.row(0)
    gpus = max(run.trace.world_size, len(run.ranks))
    time_us = run.measured_step.step_time_us
    label = label_times(run.trace)
    measured = _build_speed(kind, label, Figure.from_exact(time_us), tokens, gpus)
    predicted = (
        _build_speed(
            kind,
            target.label,
            Figure(target.step.step_time_us, target.low_us, target.high_us),
            tokens * target.batch_ratio,
            target.ranks,
        )
        for target in targets
    )
    return ServedBatches(kind, run.measured_step.steps, tokens, prompts, sequences, (measured, *predicted))


def _build_speed(kind: str, label: str, batch_us: Figure, tokens: float, gpus: int) -> ServingSpeed:
    per_second = batch_us.invert(1e6)
    tokens_per_s = per_second.scale(tokens)
    return ServingSpeed(
        label=label,
        gpus=gpus,
        batch_us=batch_us,
        first_token_us=batch_us if kind in PREFILL_KINDS else None,
        output_token_us=batch_us if kind in DECODE_KINDS else None,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s.scale(1 / gpus),
        tokens_per_s_per_user=per_second if kind in DECODE_KINDS else None,
    )


def _write_notes(kinds: Sequence[ServedBatches]) -> Iterator[Message]:
    named = {row.kind for row in kinds}
    yield told.FIRST_TOKEN_ASSUMED() if named & set(PREFILL_KINDS) else told.PREFILL_NOT_TRACED()
    yield told.OUTPUT_TOKEN_ASSUMED() if named & set(DECODE_KINDS) else told.DECODE_NOT_TRACED()
    for row in kinds:
        if row.kind == "decode" and row.sequences and row.tokens > row.sequences:
            yield told.TOKENS_SPECULATED(queries_per_sequence=row.tokens / row.sequences)
