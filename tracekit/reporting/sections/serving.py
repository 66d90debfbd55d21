"""A serving engine's batches in the words of serving: time to first token, time per output token, tokens a second."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import polars as pl

from tracekit.ingest.batches import find_requests, find_speculation
from tracekit.messages import Message
from tracekit.messages import traces as told
from tracekit.parallelism.layout import LayoutRequest
from tracekit.parallelism.process_groups import infer_layout_if_needed
from tracekit.prediction import Prediction
from tracekit.prediction.batch import infer_accepted_tokens, infer_rank_batch, separate_batches
from tracekit.reporting.columns import Column
from tracekit.reporting.figure import Figure
from tracekit.reporting.sections.step import label_times
from tracekit.run import MeasuredRun

PREFILL_KINDS, DECODE_KINDS = ("prefill", "mixed"), ("decode", "mixed")


@dataclass(frozen=True, slots=True)
class ServingSpeed:
    """What batches of one kind take, measured or on a target."""

    label: Annotated[str, Column("measured, or the target.", "GPU", name="gpu")]
    gpus: Annotated[int, Column("GPUs that serve together.")]
    batch_us: Annotated[Figure, Column("Time of a batch.")]
    first_token_us: Annotated[Figure | None, Column("Time to first token, without queueing.")]
    output_token_us: Annotated[Figure | None, Column("Time per output token, of those accepted.")]
    tokens_per_s: Annotated[
        Figure, Column("Tokens a second of such batches, one after the other: of prompts, and of output.")
    ]
    tokens_per_s_per_gpu: Annotated[Figure, Column("Tokens a second and GPU.")]
    tokens_per_s_per_user: Annotated[Figure | None, Column("Output tokens of one sequence a second.")]


@dataclass(frozen=True, slots=True)
class ServedBatches:
    """The batches of one kind.

    Attributes:
        accepted: Tokens that a sequence gets in a batch; null without speculative decoding.
        verified: Tokens that are verified for a sequence, likewise.
        speeds: The measured batch, then that on each target.
    """

    kind: Annotated[str, Column("prefill, decode, mixed, or the engine's own word.")]
    batches: Annotated[int, Column("How many batches the median is over.")]
    tokens: Annotated[float, Column("Tokens of a measured batch, with those that are speculated.")]
    prompts: Annotated[float | None, Column("Prompts in a measured batch; null where the engine doesn't tell.")]
    sequences: Annotated[float | None, Column("Running sequences in a measured batch, likewise.")]
    accepted: Figure | None
    verified: float | None
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

    ``other_batches`` are the predictions of batches of other kinds than the measured steps, by kind.
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
    gpus = max(run.trace.world_size, len(run.ranks)) * run.program.step_timer.gpus_per_rank
    batch, accepted = infer_rank_batch(run.program), infer_accepted_tokens(run.program)
    size = Figure(batch.size, *batch.ends).scale(replicas) if batch else Figure.from_exact(tokens)
    got, step = Figure(*accepted) if accepted else None, run.measured_step
    work = ServedWork(kind, size, got or Figure.from_exact(1.0))
    times = (Figure.from_exact(step.step_time_us), Figure.from_exact(step.mean_us))
    measured = work.build_speed(label_times(run.trace), gpus, *times)
    predicted = (
        replace(work, tokens=size.scale(target.batch_ratio)).build_speed(
            target.label,
            target.gpus,
            Figure(target.step.step_time_us, target.low_us, target.high_us),
            Figure(target.step.mean_us, target.mean_low_us, target.mean_high_us),
        )
        for target in targets
    )
    return ServedBatches(
        kind=kind,
        batches=step.steps,
        tokens=tokens,
        prompts=prompts,
        sequences=sequences,
        accepted=got,
        verified=_count_verified(run),
        speeds=(measured, *predicted),
    )


def _count_verified(run: MeasuredRun) -> float | None:
    found = find_speculation(run.trace, run.chosen_steps["start_ns"])
    return found.per_sequence if found else None


@dataclass(frozen=True, slots=True)
class ServedWork:
    """What a batch of one kind gets done: its tokens, and those that each sequence gets."""

    kind: str
    tokens: Figure
    accepted: Figure

    def build_speed(self, label: str, gpus: int, batch_us: Figure, mean_us: Figure) -> ServingSpeed:
        """Build the speed of batches of such times, the median and the mean."""
        tokens_per_s, decodes = mean_us.invert(1e6).multiply(self.tokens), self.kind in DECODE_KINDS
        per_token = self.accepted.invert()
        return ServingSpeed(
            label=label,
            gpus=gpus,
            batch_us=batch_us,
            first_token_us=batch_us if self.kind in PREFILL_KINDS else None,
            output_token_us=batch_us.multiply(per_token) if decodes else None,
            tokens_per_s=tokens_per_s,
            tokens_per_s_per_gpu=tokens_per_s.scale(1 / gpus),
            tokens_per_s_per_user=batch_us.invert(1e6).multiply(self.accepted) if decodes else None,
        )


def _write_notes(kinds: Sequence[ServedBatches]) -> Iterator[Message]:
    named = {row.kind for row in kinds}
    yield told.FIRST_TOKEN_ASSUMED() if named & set(PREFILL_KINDS) else told.PREFILL_NOT_TRACED()
    yield told.OUTPUT_TOKEN_ASSUMED() if named & set(DECODE_KINDS) else told.DECODE_NOT_TRACED()
    for row in kinds:
        if row.accepted is not None and row.verified is not None:
            write = told.TOKENS_ACCEPTED if row.accepted.is_exact else told.TOKENS_SPECULATED
            yield write(verified=row.verified, accepted=row.accepted.likely)
