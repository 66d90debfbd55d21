"""NVIDIA's DLRM on one GPU and MLPerf's DLRM-DCNv2 on clusters, against published throughputs.

`published_jobs/dlrm.py` lists the kernels. With CUDA graphs a latency is the GPU's behind the usual host's launches of
the copies of a batch into the graph's inputs and of the graph, for which the GPU waits, as each batch ends before the
next begins; the batch lies on the GPU before. Without them a usual host makes seven calls, each of which takes as long
as an op of captured programs. Data for training are loaded meanwhile. Nothing of it is in any fit.

DLRM-DCNv2 goes through ``tracekit predict sample_traces/dlrm_dcnv2.json --train --autocast fp16 --compile --cuda-graph
--batch N --cluster C``, with the fastest plan: HugeCTR's own plans aren't published with the results.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import exp, hypot, log
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from predictors import load_gpu
from tests.validation.published_jobs.dlrm import Dlrm, HostCall
from tests.validation.published_jobs.kernels import predict_from_shapes, sum_kernel_times
from tests.validation.study import format_table, list_sources, read_published
from tracekit.arrays import Floats
from tracekit.capturing.calls import Call
from tracekit.capturing.timed_trace import GRAPH_US_PER_OP, HOST_US_PER_OP
from tracekit.capturing.timeline import build_trace
from tracekit.hosts import find_usual_host
from tracekit.parallelism.ddp_hooks import DEFAULT_COPY_US
from tracekit.request import PredictRequest, answers
from tracekit.request.program_options import ProgramOptions
from tracekit.run import prepare_run

INPUTS = ()
KIND = ("source", "GPU", "precision", "CUDA graphs")
KINDS = (*KIND, "rows", "error, median", "absolute", "within 20 %", "inside")
HEADINGS = (*KIND, "batch", "measured", "predicted", "error", "90 % interval")


CLUSTER_HEADINGS = (
    "source",
    "system",
    "cluster",
    "samples",
    "published",
    "predicted",
    "error",
    "90 % interval",
    "inside",
)
DCNV2 = Path(__file__).parents[4] / "sample_traces" / "dlrm_dcnv2.json"


class Outcome(NamedTuple):
    """A predicted step beside a published one; in microseconds."""

    row: dict[str, Any]
    step_us: float
    low_us: float
    high_us: float

    @property
    def measured_us(self) -> float:
        """Return the time that the published throughput gives."""
        return float(1e6 * self.row["batch"] / self.row["samples_per_s"])

    @property
    def error_pct(self) -> float:
        """Return the error of the step's time."""
        return 100 * (self.step_us / self.measured_us - 1)

    @property
    def is_inside(self) -> bool:
        """Return whether the interval holds the published time."""
        return self.low_us <= self.measured_us <= self.high_us

    @property
    def kind(self) -> tuple[str, ...]:
        """Return what rows that are summed up have in common."""
        row = self.row
        return row["source"], row["gpu"], row["precision"], "on" if row["cuda_graphs"] else "off"


def run() -> str:
    """Return the errors of each kind of rows, then a row for each published throughput."""
    found = [predict_row(row) for row in read_published("recommender_jobs").iter_rows(named=True)]
    return "\n".join(
        (
            "# NVIDIA's DLRM on one GPU\n",
            format_table(KINDS, list(summarise(found))),
            format_table(HEADINGS, (format_outcome(one) for one in found)),
            "\n## MLPerf's DLRM-DCNv2 on clusters\n",
            format_table(CLUSTER_HEADINGS, list(predict_clusters())),
            list_sources("recommender_jobs", "recommender_clusters"),
        )
    )


def predict_clusters() -> Iterator[tuple[str, ...]]:
    """Yield a row for each published step of DLRM-DCNv2, predicted as the command line does."""
    for row in read_published("recommender_clusters").iter_rows(named=True):
        options = ProgramOptions(train=True, autocast="fp16", compile=True, cuda_graph=True)
        asked = PredictRequest(cluster=row["cluster"], batch=row["batch"] // row["ranks"])
        trace, request = options.capture_trace(str(DCNV2), asked)
        (step,) = answers.predict(answers.measure(trace, request), request).targets
        published_us = 1e6 * row["batch"] / row["samples_per_s"]
        yield (
            *(row["source"], row["system"], row["cluster"], f"{row['batch']:,}", f"{published_us / 1e3:.3g} ms"),
            *(f"{step.step.step_time_us / 1e3:.3g} ms", f"{100 * (step.step.step_time_us / published_us - 1):+.0f} %"),
            f"{step.low_us / 1e3:.3g}–{step.high_us / 1e3:.3g} ms",
            "yes" if step.low_us <= published_us <= step.high_us else "no",
        )


def summarise(found: Sequence[Outcome]) -> Iterator[tuple[str, ...]]:
    """Yield the errors of each kind of rows, and of all."""
    groups: dict[tuple[str, ...], list[Outcome]] = defaultdict(list)
    for one in found:
        groups[one.kind].append(one)
    for kind, some in [*sorted(groups.items()), (("all", "", "", ""), list(found))]:
        errors = [one.error_pct for one in some]
        within = sum(abs(error) <= 20 for error in errors)
        inside = sum(one.is_inside for one in some)
        cells = (f"{median(errors):+.0f} %", f"{median(map(abs, errors)):.0f} %", str(within), str(inside))
        yield *kind, str(len(some)), *cells


def format_outcome(one: Outcome) -> tuple[str, ...]:
    """Return the cells of a published throughput."""
    times = (f"{one.measured_us / 1e3:.3g} ms", f"{one.step_us / 1e3:.3g} ms", f"{one.error_pct:+.0f} %")
    return *one.kind, f"{one.row['batch']:,}", *times, f"{one.low_us / 1e3:.3g}–{one.high_us / 1e3:.3g} ms"


def predict_row(row: dict[str, Any]) -> Outcome:
    """Predict the step of a published throughput; errors of the GPU's times and of the host are independent."""
    calls, gpu = list_calls(row), load_gpu(row["gpu"])
    table = tabulate_kernels(calls)
    times = predict_from_shapes(table, gpu.slug)
    total_us, *ends_us = sum_kernel_times(table, times)
    kernels_us, host = times["time_us"].to_numpy(), find_usual_host(gpu)

    def time_with(end_us: float, speed: float) -> float:
        kernels = kernels_us * end_us / total_us
        if not row["cuda_graphs"]:
            return time_step(calls, kernels, HOST_US_PER_OP / speed, gpu.slug)
        copies = sum(call.name == "copy" for call in calls)
        launch_us = DEFAULT_COPY_US / speed if copies else 0.0
        before_us = launch_us + max(copies * launch_us, float(kernels[:copies].sum()))
        return before_us + time_step(calls[copies:], kernels[copies:], GRAPH_US_PER_OP, gpu.slug)

    step_us = time_with(total_us, host.speed)
    by_gpu = (log(time_with(end, host.speed) / step_us) for end in ends_us)
    by_host = (log(time_with(total_us, speed) / step_us) for speed in (host.high, host.low))
    fast, slow = (hypot(*errors) for errors in zip(by_gpu, by_host, strict=True))
    return Outcome(row, step_us, step_us * exp(-fast), step_us * exp(slow))


def tabulate_kernels(calls: Sequence[HostCall]) -> pl.DataFrame:
    """Return the kernels of calls; those of equal work count as the same kernel."""
    table = pl.DataFrame([kernel for call in calls for kernel in call.kernels], infer_schema_length=None)
    sizes = pl.struct("m", "n", "k", "bytes").struct.json_encode()
    return table.with_columns(name="family", op="direction", input_dims=sizes)


def list_calls(row: dict[str, Any]) -> list[HostCall]:
    """List the host's calls of a published step."""
    model = Dlrm(row["batch"], row["precision"], trains=row["step"] == "train")
    if model.trains:
        return list(model.list_training())
    copies = model.list_input_copies() if row["cuda_graphs"] else ()
    return [*copies, *model.list_inference()]


def time_step(calls: Sequence[HostCall], kernels_us: Floats, host_us: float, gpu: str) -> float:
    """Return the step that kernels of known times make with a host, in microseconds.

    Args:
        calls: The host's.
        kernels_us: Times of their kernels, in order.
        host_us: The host's time for a call with one kernel.
        gpu: Which the trace is of.
    """
    launches = [Call(call.name, [], [], [], ("kernel",) * len(call.kernels)) for call in calls]
    trace = build_trace(launches, np.maximum(kernels_us, 0.001).tolist(), host_us).load()
    return prepare_run(trace, source_gpu=gpu).measured_step.step_time_us
