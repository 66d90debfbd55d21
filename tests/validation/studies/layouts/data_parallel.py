"""FSDP on more GPUs, and DDP's overlap with the backward pass, against published jobs.

No trace of these jobs is public, so a transformer of their size is built: its ops are PyTorch's own, its kernels' times
those of a roofline, scaled so that the job on the fewest GPUs (FSDP), or without overlap (DDP), has its published time.
What is tested is what tracekit adds for more GPUs, and what overlap saves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tracekit as tk
from predictors import load_gpu
from sample_traces.synthetic.models import Shape
from tests.validation.published_jobs.scaled_transformer import build_trace_of_length
from tests.validation.study import Result, format_results, format_table, format_yes, list_sources, read_published
from tracekit.prediction.model import Prediction
from tracekit.trace import Trace

INPUTS = ()
FSDP_ROUNDS = 2
"""Of scaling the kernels; a collective that is partly hidden makes a step other than proportional to them."""
OVERLAP_ROUNDS = 4
OVERLAP_GPU = "a100-sxm-80gb"
"""Its source names no GPU; all times are scaled."""
GPT2_XL = {"layers": 48, "width": 1600, "heads": 25, "vocabulary": 10000}
SHAPE = ("layers", "width", "heads", "vocabulary", "batch", "tokens")


@dataclass(frozen=True)
class FsdpJob:
    """A job on several numbers of GPUs.

    Attributes:
        name: Of the job.
        shape: Of the model and of a rank's micro-batch.
        gpu: That it ran on.
        node: Its nodes of eight, as tracekit names clusters.
        tokens_per_s: Of one GPU, by number of GPUs.
    """

    name: str
    shape: Shape
    gpu: str
    node: str
    tokens_per_s: dict[int, int]

    @property
    def tokens(self) -> int:
        """Return the tokens of a rank's step."""
        return self.shape.batch * self.shape.tokens


def run() -> str:
    """Return a table of FSDP and one of DDP."""
    fsdp = ("job", "GPUs", "tokens/s a GPU", "predicted", "error", "lost, measured", "predicted", "in interval")
    ddp = (
        "batch", "without overlap", "of it all-reduces", "in buckets of 10 and 100 MB", "predicted", "errors",
        "90 % interval",
    )  # fmt: skip
    results: list[Result] = []
    return "\n".join(
        (
            "# Data parallelism against published jobs\n",
            "## FSDP on more GPUs\n",
            format_table(fsdp, (row for job in read_fsdp_jobs() for row in predict_fsdp_job(job, results))),
            format_results(results),
            "## Gradients reduced during the backward pass\n",
            "GPT-2 XL in fp32 by DDP on two GPUs. The time without overlap gives what computing and what the "
            "all-reduces take.\n",
            format_table(ddp, map(predict_overlap, read_published("ddp_overlap").iter_rows(named=True))),
            list_sources("fsdp_throughputs", "ddp_overlap"),
        )
    )


def read_fsdp_jobs() -> Iterator[FsdpJob]:
    """Yield the published jobs."""
    for rows in read_published("fsdp_throughputs").partition_by("job", maintain_order=True):
        first = rows.row(0, named=True)
        rates = dict(rows.select("gpus", "tokens_per_s").iter_rows())
        yield FsdpJob(first["job"], Shape(*(first[size] for size in SHAPE)), first["gpu"], first["node"], rates)


def predict_fsdp_job(job: FsdpJob, results: list[Result]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each number of GPUs but the fewest, for which the kernels are scaled.

    Args:
        job: A published job.
        results: Gets the result of each row.
    """
    fewest, *others = job.tokens_per_s

    def predict_fewest_us(trace: Trace) -> float:
        return predict_fsdp(trace, job, fewest).step.step_time_us

    step_us = 1e6 * job.tokens / job.tokens_per_s[fewest]
    trace, _ = build_trace_of_length(step_us, job.shape, job.name, predict_fewest_us, FSDP_ROUNDS)
    base = 1e6 * job.tokens / predict_fewest_us(trace)
    for gpus in others:
        found, measured = predict_fsdp(trace, job, gpus), job.tokens_per_s[gpus]
        rate, high, low = (1e6 * job.tokens / us for us in (found.step.step_time_us, found.low_us, found.high_us))
        result = Result(load_gpu(job.gpu).name, 100 * (rate / measured - 1), low <= measured <= high)
        results.append(result)
        yield (
            job.name,
            f"{fewest} → {gpus}",
            f"{measured:,}",
            f"{rate:,.0f}",
            f"{result.error_pct:+.1f} %",
            f"{100 * (1 - measured / job.tokens_per_s[fewest]):.1f} %",
            f"{100 * (1 - rate / base):.1f} %",
            format_yes(result.is_inside),
        )


def predict_fsdp(trace: Trace, job: FsdpJob, gpus: int) -> Prediction:
    """Predict the job on a number of GPUs."""
    cluster = f"{gpus // 8}x{job.node}" if gpus > 8 else job.node
    return tk.predict(trace, cluster=cluster, source_gpu=job.gpu, dp=gpus, fsdp=True, no_calibration=True)[cluster]


def predict_overlap(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of one batch."""
    whole_s, reducing_s = row["step_s"], row["all_reduce_s"]
    buckets_s = row["step_10_mb_buckets_s"], row["step_100_mb_buckets_s"]
    shape = Shape(**GPT2_XL, batch=row["batch"], tokens=row["tokens"])
    computing_us = (whole_s - reducing_s) * 1e6
    trace, _ = build_trace_of_length(computing_us, shape, "gpt2-xl", predict_alone_us, OVERLAP_ROUNDS)
    found = predict_reduced(trace, reducing_s)
    step_s, low_s, high_s = (us / 1e6 for us in (found.step.step_time_us, found.low_us, found.high_us))
    errors = " and ".join(f"{100 * (step_s / bucket_s - 1):+z.0f}" for bucket_s in buckets_s)
    return (
        f"{row['batch']} x {row['tokens']}",
        f"{whole_s:.3f} s",
        f"{reducing_s:.3f} s",
        f"{buckets_s[0]:.3f} and {buckets_s[1]:.3f} s",
        f"{step_s:.3f} s",
        f"{errors} %",
        f"{low_s:.2f}–{high_s:.2f} s",
    )


def predict_alone_us(trace: Trace) -> float:
    """Predict a step on one GPU."""
    return tk.predict(trace, gpu=OVERLAP_GPU, no_calibration=True)[OVERLAP_GPU].step.step_time_us


def predict_reduced(trace: Trace, all_reduce_s: float) -> Prediction:
    """Predict two replicas over a link on which their all-reduces take a given time."""
    gbit = 40.0
    for _ in range(OVERLAP_ROUNDS):
        cluster = f"2x1x{OVERLAP_GPU}@eth{gbit:.3f}"
        predictions = tk.predict(trace, cluster=cluster, dp=2, no_calibration=True)
        found = predictions[cluster]
        gbit *= found.inserted_us["collective"] / predictions.run.chosen_steps.height / 1e6 / all_reduce_s
    return found
