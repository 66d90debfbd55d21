"""Predict how long a PyTorch step takes on another GPU or cluster, from profiler traces of the present one.

import tracekit as tk

trace = tk.load("trace.json.gz")
tk.report(trace).findings
tk.predict(trace, gpu=["h100-sxm", "l40s"])["h100-sxm"].speedup
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from tracekit.ingest import Inputs, Ranks
    from tracekit.prediction import Predictions
    from tracekit.prediction.sweep import Sweep
    from tracekit.recording import Recording
    from tracekit.reporting import Report
    from tracekit.reporting.comparison import Comparison
    from tracekit.trace import Trace

__all__ = ["TracekitError", "compare", "load", "predict", "record", "report", "sweep"]
__version__ = "0.1.0"


def load(
    inputs: Inputs,
    *,
    ranks: Ranks = None,
    cache: bool = True,
    memory: str | int | None = None,
    stacks: bool = False,
    progress: Callable[[str], None] = lambda stage: None,
) -> Trace:
    """Read the PyTorch profiler traces of one job, a file per rank.

    Args:
        inputs: A file (``.json``, gzip, zstd or zip), a directory, a glob, a URI, ``-`` for standard input, or several
            of them.
        ranks: The ranks to read, or ``"lowest"`` for the lowest one only; all by default.
        cache: Whether to read decoded files from the cache on this machine, and to store them there.
        memory: Memory limit of the tables, such as ``"2G"``; by default half of the machine's memory.
        stacks: Whether to read Python calls (``with_stack=True``), for modules and Python lines of kernels.
        progress: Called with a description of the current stage.

    Raises:
        TraceError: A file is missing, damaged, not a profiler trace, or holds no GPU activity; a rank is missing, given
            twice, or unknown.
        TracekitError: ``memory`` is not a size.
    """
    from tracekit import ingest

    return ingest.load(inputs, ranks=ranks, cache=cache, memory=memory, stacks=stacks, progress=progress)


def report(
    trace: Trace | Predictions,
    *,
    source_gpu: str | None = None,
    what_if: str | Sequence[str] | None = None,
    host_speed: float | None = None,
    unprofiled_step_us: float | None = None,
    steps: int | str | None = None,
    without_rules: Sequence[str] = (),
) -> Report:
    """Report where the time of the measured step goes and what limits it.

    Args:
        trace: As returned by :func:`load`; or the result of :func:`predict`, for a report that includes the
            predictions. In that case the other arguments do not apply.
        source_gpu: The GPU it was recorded on, if the trace does not name it.
        what_if: One or several edits to replay, in order: ``["no-sync(aten::item)", "scale(family=gemm, 0.5)"]``.
        host_speed: Speed of the CPU relative to the traced one; unchanged by default.
        unprofiled_step_us: Step time without the profiler, to subtract the profiler's overhead.
        steps: The steps to measure, ``7`` or ``"7:9"``; all by default.
        without_rules: Names of inference rules to switch off; ``tracekit info -v`` lists them.

    Raises:
        TracekitError: The steps are not in the trace, or an edit is unknown or finds nothing to change.
        PredictorError: The source GPU is unknown or ambiguous.
    """
    from tracekit.prediction import Predictions
    from tracekit.reporting import build_prediction_report, build_report
    from tracekit.run import prepare_run
    from tracekit.whatif.requested import apply_requested_edits, parse_edits

    if isinstance(trace, Predictions):
        return build_prediction_report(trace)
    edits = parse_edits(_as_sequence(what_if), host_speed)
    edited = apply_requested_edits(
        prepare_run(trace, source_gpu=source_gpu, steps=_format_steps(steps), without_rules=without_rules),
        edits,
        unprofiled_step_us,
    )
    return build_report(edited.original_run, what_if=edited)


def predict(
    trace: Trace,
    *,
    gpu: str | Sequence[str] | None = None,
    cluster: str | Sequence[str] | None = None,
    source_gpu: str | None = None,
    source_cluster: str | None = None,
    world_size: int | None = None,
    dp: int | None = None,
    tp: int | None = None,
    pp: int | None = None,
    ep: int | None = None,
    micro_batches: int | None = None,
    pp_schedule: str | None = None,
    batch: float | None = None,
    fsdp: bool = False,
    price: Mapping[str, float] | None = None,
    samples: float | None = None,
    what_if: str | Sequence[str] | None = None,
    host_speed: float | None = None,
    unprofiled_step_us: float | None = None,
    steps: int | str | None = None,
    without_rules: Sequence[str] = (),
    calibration: bool = True,
) -> Predictions:
    """Predict the traced step on other GPUs or clusters.

    Args:
        trace: As returned by :func:`load`.
        gpu: One or several GPUs, in any spelling; ``tracekit gpus`` lists them.
        cluster: One or several clusters, such as ``"4x8xh100-sxm@ndr400"``; ``tracekit clusters`` lists names.
        source_gpu: The GPU it was recorded on, if the trace does not name it.
        source_cluster: The cluster it was recorded on, if the GPU does not determine it.
        world_size: Ranks of the job on the target; by default as many as in the trace.
        dp: Data-parallel replicas on the target.
        tp: Tensor-parallel ranks on the target.
        pp: Pipeline stages on the target.
        ep: Expert-parallel ranks on the target.
        micro_batches: Micro-batches of a step in the pipeline; by default the trace's times ``pp``.
        pp_schedule: ``"1f1b"``, the default, ``"zero-bubble"``, ``"interleaved"``, or ``"interleaved:4"`` with so many
            chunks of layers on each stage.
        batch: Batch of each rank on the target, relative to that in the trace.
        fsdp: Whether the replicas of a one-GPU job shard parameters, gradients and optimizer state.
        price: Dollars for an hour of one GPU, by the GPU's name, such as ``{"h100-sxm": 2.49}``.
        samples: Samples that a rank processes in a traced step, if nothing in the trace determines them.
        what_if: One or several edits to replay, in order: ``["no-sync(aten::item)", "scale(family=gemm, 0.5)"]``.
        host_speed: Speed of the CPU relative to the traced one; unchanged by default.
        unprofiled_step_us: Step time without the profiler, to subtract the profiler's overhead.
        steps: The steps to measure, ``7`` or ``"7:9"``; all by default.
        without_rules: Names of inference rules to switch off; ``tracekit info -v`` lists them.
        calibration: Whether to use the calibrations stored on this machine (``tracekit calibrate``).

    Raises:
        TracekitError: No target is named, the steps are not in the trace, a cluster is unknown or too small, the layout
            is impossible for the job, an edit is unknown or finds nothing to change, or a calibration is unreadable.
        PredictorError: A GPU is unknown or its name ambiguous.
    """
    from tracekit import prediction
    from tracekit.parallelism.layout import parse_schedule
    from tracekit.run import prepare_run
    from tracekit.whatif.requested import apply_requested_edits, parse_edits

    gpus, clusters = _require_targets(gpu, cluster)
    chunks, zero_bubble = parse_schedule(pp_schedule)
    edits = parse_edits(_as_sequence(what_if), host_speed)
    edited = apply_requested_edits(
        prepare_run(trace, source_gpu=source_gpu, steps=_format_steps(steps), without_rules=without_rules),
        edits,
        unprofiled_step_us,
    )
    change = prediction.LayoutRequest(
        world_size=world_size,
        dp=dp,
        tp=tp,
        pp=pp,
        ep=ep,
        micro_batches=micro_batches,
        chunks=chunks,
        batch=batch,
        fsdp=fsdp or None,
        zero_bubble=zero_bubble,
    )
    on_targets = partial(
        prediction.predict,
        gpus=gpus,
        clusters=clusters,
        source_cluster=source_cluster,
        change=change,
        prices=price or {},
        samples=samples,
        calibrated=calibration,
    )
    return prediction.predict_edited(edited, on_targets)


def _require_targets(
    gpu: str | Sequence[str] | None, cluster: str | Sequence[str] | None
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of target GPUs and of target clusters.

    Raises:
        TracekitError: There are none.
    """
    if not gpu and not cluster:
        raise TracekitError("No target was named.", 'Say where to: gpu="h100-sxm", cluster="8xh100-sxm", or both.')
    return _as_sequence(gpu), _as_sequence(cluster)


def _as_sequence(given: Any) -> Sequence[Any]:
    """Return one, several or no names or numbers as a list."""
    return () if given is None else [given] if isinstance(given, str | int) else given


def _format_steps(steps: int | str | None) -> str | None:
    """Format steps as the command line takes them."""
    return None if steps is None else str(steps)


def compare(
    a: Trace | Report | Predictions,
    b: Trace | Report | Predictions,
    *,
    gpu: str | None = None,
    steps: int | str | None = None,
) -> Comparison:
    """Compare two measured runs, or a prediction with a run recorded later.

    Args:
        a: A trace, its report, or predictions.
        b: The other one.
        gpu: Which of several predictions to compare.
        steps: The steps to measure, ``7`` or ``"7:9"``; all by default.

    Raises:
        TracekitError: The steps are not in the trace, or ``gpu`` does not select one of several predictions.
    """
    from tracekit.reporting.comparison import compare, to_side

    return compare(to_side(a, gpu, _format_steps(steps)), to_side(b, gpu, _format_steps(steps)))


def sweep(
    trace: Trace,
    *,
    gpu: str | Sequence[str] | None = None,
    cluster: str | Sequence[str] | None = None,
    world_size: int | Sequence[int] | None = None,
    tp: int | Sequence[int] | None = None,
    pp: int | Sequence[int] | None = None,
    ep: int | Sequence[int] | None = None,
    micro_batches: int | None = None,
    pp_schedule: str | None = None,
    fsdp: bool = False,
    price: Mapping[str, float] | None = None,
    samples: float | None = None,
    source_gpu: str | None = None,
    source_cluster: str | None = None,
    steps: int | str | None = None,
    without_rules: Sequence[str] = (),
    calibration: bool = True,
) -> Sweep:
    """Predict the traced job on many numbers of ranks; layouts are sorted by throughput, highest first.

    Args:
        trace: As returned by :func:`load`.
        gpu: One or several GPUs, each in its usual node.
        cluster: One or several clusters.
        world_size: One or several numbers of ranks; by default doubled from the trace's up to the whole cluster.
        tp: Tensor-parallel ranks; by default the trace's.
        pp: Pipeline stages; by default the trace's.
        ep: Expert-parallel ranks; by default as in the trace.
        micro_batches: Micro-batches of a step in the pipeline; by default the trace's times ``pp``.
        pp_schedule: ``"1f1b"``, the default, ``"zero-bubble"``, ``"interleaved"``, or ``"interleaved:4"`` with so many
            chunks of layers on each stage.
        fsdp: Whether the replicas of a one-GPU job shard parameters, gradients and optimizer state.
        price: Dollars for an hour of one GPU, by the GPU's name.
        samples: Samples that a rank processes in a step, if the trace does not determine them.
        source_gpu: The GPU it was recorded on, if the trace does not name it.
        source_cluster: The cluster it was recorded on, if the GPU does not determine it.
        steps: The steps to measure, ``7`` or ``"7:9"``; all by default.
        without_rules: Names of inference rules to switch off; ``tracekit info -v`` lists them.
        calibration: Whether to use the calibrations stored on this machine (``tracekit calibrate``).

    Raises:
        TracekitError: No target is named, the steps are not in the trace, a cluster is unknown, or no layout can be
            predicted.
        PredictorError: A GPU is unknown or its name ambiguous.
    """
    from tracekit.parallelism.layout import parse_schedule
    from tracekit.prediction.sweep import sweep as over_layouts
    from tracekit.run import prepare_run

    gpus, clusters = _require_targets(gpu, cluster)
    chunks, zero_bubble = parse_schedule(pp_schedule)
    return over_layouts(
        prepare_run(trace, source_gpu=source_gpu, steps=_format_steps(steps), without_rules=without_rules),
        gpus,
        clusters,
        source_cluster=source_cluster,
        world_sizes=_as_sequence(world_size),
        tensor_parallel=_as_sequence(tp),
        pipeline_parallel=_as_sequence(pp),
        expert_parallel=_as_sequence(ep),
        micro_batches=micro_batches,
        chunks=chunks,
        zero_bubble=zero_bubble,
        sharded=fsdp,
        prices=price or {},
        samples=samples,
        calibrated=calibration,
    )


def record(
    folder: str | PathLike[str] = "traces",
    *,
    name: str = "trace",
    wait: int = 5,
    timed: int = 5,
    warmup: int = 2,
    active: int = 3,
    overwrite: bool = False,
    quiet: bool = False,
) -> Recording:
    """Record a trace that predicts well; needs PyTorch and none of tracekit's own requirements.

    Use ``with tk.record() as recording:`` around a loop that calls ``recording.step()`` after each step, on every rank;
    or ``@tk.record()`` above the function that is a step.

    Args:
        folder: Folder of the traces, a file per rank.
        name: The file's name without suffixes.
        wait: Steps to skip first.
        timed: Steps to time without the profiler.
        warmup: Warm-up steps of the profiler.
        active: Steps to record.
        overwrite: Whether to replace a trace of that name.
        quiet: Whether to print nothing on stderr.

    Raises:
        RecordingError: The trace exists already, cannot be written, or the program took too few steps.
        TracekitError: The counts of steps record nothing.
    """
    from tracekit.recording import Recording
    from tracekit.recording.plan import RecordingPlan

    return Recording(
        folder, name=name, plan=RecordingPlan(wait, timed, warmup, active), overwrite=overwrite, quiet=quiet
    )
