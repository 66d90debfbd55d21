"""Pipelines of one job against its published throughputs.

No trace of these jobs is public, so a transformer of their size is built: its ops are PyTorch's own, its kernels' times
those of a roofline, all scaled so that one row of the job is met. What is tested is what tracekit makes of other
numbers of micro-batches, other schedules, and a larger head. Where nothing is said of the network, 200 Gbit/s for each
GPU are taken.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tracekit as tk
from sample_traces.synthetic.models import Shape
from tests.validation.published_jobs.scaled_transformer import build_scaled_trace, build_trace_of_length
from tests.validation.study import Result, format_results, format_table, format_yes, list_sources, read_published
from tracekit.prediction.model import Prediction
from tracekit.trace import Trace

INPUTS = ()
ROUNDS = 3
"""Of scaling the kernels; a step also holds sends, so it isn't proportional to them."""
SHAPE = ("layers", "width", "heads", "vocabulary", "batch", "tokens")


@dataclass(frozen=True)
class PipelineStep:
    """A published step.

    Attributes:
        job: Its name.
        shape: Of the model and of the job's usual micro-batch.
        schedule: '1F1B', 'interleaved' or 'ZB-H1'.
        stages: Of the pipeline.
        chunks: Of layers on each stage, if interleaved.
        dp: Replicas of the pipeline.
        tp: Ranks that share each layer.
        fsdp: Whether replicas share out parameters.
        micro_batches: In a step.
        batch_factor: Samples of a micro-batch over those of the shape.
        samples_per_s: Of one GPU.
        node: Its nodes of eight.
        network: Of each GPU.
    """

    job: str
    shape: Shape
    schedule: str
    stages: int
    chunks: int | None
    dp: int
    tp: int
    fsdp: bool
    micro_batches: int
    batch_factor: float
    samples_per_s: float
    node: str
    network: str

    @property
    def gpus_per_replica(self) -> int:
        """Return the GPUs of one pipeline."""
        return self.tp * self.stages

    @property
    def samples(self) -> float:
        """Return the samples of a step for each GPU of a pipeline."""
        return self.micro_batches * self.batch_factor * self.shape.batch / self.gpus_per_replica

    @property
    def cluster(self) -> str:
        """Return what it ran on, as tracekit names clusters."""
        nodes = self.dp * self.gpus_per_replica // 8
        return f"{nodes}x{self.node}@{self.network}" if nodes > 1 else self.node

    @property
    def layout(self) -> dict[str, Any]:
        """Return the options of a prediction."""
        schedules = {"interleaved": f"interleaved:{self.chunks}", "ZB-H1": "zero-bubble"}
        schedule = schedules.get(self.schedule)
        options: dict[str, Any] = {"pp": self.stages, "micro_batches": self.micro_batches, "pp_schedule": schedule}
        usual = {"batch": (self.batch_factor, 1), "dp": (self.dp, 1), "tp": (self.tp, 1), "fsdp": (self.fsdp, False)}
        options |= {name: value for name, (value, default) in usual.items() if value != default}
        return {name: value for name, value in options.items() if value is not None}

    def classify(self, first: "PipelineStep") -> str:
        """Return what is tested: a schedule, or what else differs from the job's first step."""
        if self.fsdp:
            return "FSDP, interleaved"
        if self.shape.vocabulary != first.shape.vocabulary:
            return "a larger head"
        return "stages with tensor or data parallelism" if self.tp * self.dp > 1 else self.schedule

    def describe(self, first: "PipelineStep") -> str:
        """Return the schedule, the micro-batches, and what differs from the job's first step."""
        more = [
            f"{self.batch_factor:g} times as large" if self.batch_factor != 1 else "",
            f"{self.stages} stages" if self.stages != first.stages else "",
            f"dp {self.dp}" if self.dp > 1 else "",
            f"tp {self.tp}" if self.tp > 1 else "",
            f"vocabulary {self.shape.vocabulary:,}" if self.shape.vocabulary != first.shape.vocabulary else "",
            f"{self.chunks} chunks" if self.chunks else "",
        ]
        return ", ".join([f"{self.schedule}, {self.micro_batches}", *filter(None, more)])


def run() -> str:
    """Return a row for each published step; those that set the scale have no prediction."""
    headings = (
        "job", "schedule, micro-batches", "samples/s a GPU", "predicted", "error", "90 % interval", "in interval",
    )  # fmt: skip
    results: list[Result] = []
    return "\n".join(
        (
            "# Pipelines against published throughputs\n",
            format_table(headings, (row for steps in read_jobs() for row in predict_job(results, *steps))),
            format_results(results),
            list_sources("pipeline_throughputs"),
        )
    )


def read_jobs() -> Iterator[list[PipelineStep]]:
    """Yield the steps of each job; the first sets the scale."""
    for rows in read_published("pipeline_throughputs").partition_by("job", maintain_order=True):
        yield [read_step(row) for row in rows.iter_rows(named=True)]


def read_step(row: dict[str, Any]) -> PipelineStep:
    """Return a row of published figures."""
    columns = (
        "job", "schedule", "stages", "chunks", "dp", "tp", "micro_batches", "batch_factor", "samples_per_s", "node",
        "network",
    )  # fmt: skip
    shape = Shape(*(row[size] for size in SHAPE))
    return PipelineStep(shape=shape, fsdp=bool(row["fsdp"]), **{name: row[name] for name in columns})


def predict_job(results: list[Result], first: PipelineStep, *others: PipelineStep) -> Iterator[tuple[str, ...]]:
    """Yield a row for each step of a job, whose kernels are scaled to its first.

    Args:
        results: Gets the result of each row but the first.
        first: Step that sets the scale.
        others: Of the same job.
    """

    def predict_first_us(trace: Trace) -> float:
        return predict_step(trace, first).step.step_time_us

    step_us = 1e6 * first.samples / first.samples_per_s
    trace, slowdown = build_trace_of_length(step_us, first.shape, first.job, predict_first_us, ROUNDS)
    yield first.job, first.describe(first), f"{first.samples_per_s:.4g}", "sets the scale", "", "", ""
    for step in others:
        own = trace if step.shape == first.shape else build_scaled_trace(step.shape, step.job, slowdown)
        found, measured = predict_step(own, step), step.samples_per_s
        rate, high, low = (1e6 * step.samples / us for us in (found.step.step_time_us, found.low_us, found.high_us))
        result = Result(step.classify(first), 100 * (rate / measured - 1), low <= measured <= high)
        results.append(result)
        yield (
            step.job,
            step.describe(first),
            f"{measured:.4g}",
            f"{rate:.4g}",
            f"{result.error_pct:+.1f} %",
            f"{low:.4g}–{high:.4g}",
            format_yes(result.is_inside),
        )


def predict_step(trace: Trace, step: PipelineStep) -> Prediction:
    """Predict the trace in a step's layout."""
    return tk.predict(trace, cluster=step.cluster, no_calibration=True, **step.layout)[step.cluster]
