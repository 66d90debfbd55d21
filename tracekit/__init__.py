"""tracekit: how long a PyTorch iteration would take on another GPU, from the profiler traces of the one you have.

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
        inputs: A file (``.json``, gzip, zstd or zip), a directory, a glob, a URI, ``-`` for standard input, or
            several of them.
        ranks: The ranks to read, or ``"lowest"`` for the lowest one only; all by default.
        cache: Whether decoded files are kept on this machine, and taken from there.
        memory: The most that the tables may take, such as ``"2G"``; by default half of the machine's memory.
        stacks: Whether Python's calls are read (``with_stack=True``), for modules and Python lines of kernels.
        progress: Called with what is being done.

    Raises:
        TraceError: A file is missing, damaged, no profiler trace, or holds no GPU activity; a rank is missing,
            there twice, or can't be told.
        TracekitError: ``memory`` is no size.
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
) -> Report:
    """Where the measured step's time goes and what holds it back.

    Args:
        trace: As :func:`load` gives it; or what :func:`predict` gives, for a report with the predictions in it. Then
            the other arguments don't apply.
        source_gpu: The GPU it was recorded on, where the trace doesn't say.
        what_if: A change to replay or several, in order: ``["no-sync(aten::item)", "scale(family=gemm, 0.5)"]``.
        host_speed: How many times as fast the CPU is; unchanged by default.
        unprofiled_step_us: What a step takes without the profiler, to take its overhead out.
        steps: The steps to measure, ``7`` or ``"7:9"``; all by default.

    Raises:
        TracekitError: The steps are not in the trace, or an edit is unknown or finds nothing to change.
        PredictorError: The source GPU is unknown or ambiguous.
    """
    from tracekit.prediction import Predictions
    from tracekit.replay.edit import asked, edit
    from tracekit.replay.run import prepare
    from tracekit.reporting import build, of_predictions

    if isinstance(trace, Predictions):
        return of_predictions(trace)
    edits = asked(_several(what_if), host_speed)
    edited = edit(prepare(trace, source_gpu=source_gpu, steps=_text(steps)), edits, unprofiled_step_us)
    return build(edited.before, what_if=edited)


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
    calibration: bool = True,
) -> Predictions:
    """The traced step on other GPUs or clusters.

    Args:
        trace: As :func:`load` gives it.
        gpu: One or several GPUs, in any spelling; ``tracekit gpus`` lists them.
        cluster: One or several clusters, such as ``"4x8xh100-sxm@ndr400"``; ``tracekit clusters`` lists names.
        source_gpu: The GPU it was recorded on, where the trace doesn't say.
        source_cluster: The cluster it was recorded on, where the GPU doesn't tell.
        world_size: Ranks of the job there; by default as many as in the trace.
        dp: Data-parallel replicas there.
        tp: Tensor-parallel ranks there.
        pp: Pipeline stages there.
        ep: Ranks that share a layer's experts there.
        micro_batches: Passes of a step through the stages; by default the trace's times ``pp``.
        pp_schedule: ``"1f1b"``, the default, ``"zero-bubble"``, ``"interleaved"``, or ``"interleaved:4"`` with so many
            chunks of layers on each stage.
        batch: Each rank's batch there, over that in the trace.
        fsdp: Whether replicas of a one-GPU job share out parameters, gradients and optimizer state.
        price: Dollars for an hour of one GPU, by the GPU's name, such as ``{"h100-sxm": 2.49}``.
        samples: What a rank works through in a traced step, where nothing in the trace tells.
        what_if: A change to replay or several, in order: ``["no-sync(aten::item)", "scale(family=gemm, 0.5)"]``.
        host_speed: How many times as fast the CPU is; unchanged by default.
        unprofiled_step_us: What a step takes without the profiler, to take its overhead out.
        steps: The steps to measure, ``7`` or ``"7:9"``; all by default.
        calibration: Whether calibrations kept on this machine are used (``tracekit calibrate``).

    Raises:
        TracekitError: No target is named, the steps are not in the trace, a cluster is unknown or too small, the job
            can't be laid out like that, an edit is unknown or finds nothing to change, or a calibration can't be read.
        PredictorError: A GPU is unknown or its name ambiguous.
    """
    from tracekit import prediction
    from tracekit.prediction.layout import scheduled
    from tracekit.replay.edit import asked, edit
    from tracekit.replay.run import prepare

    gpus, clusters = _targets(gpu, cluster)
    chunks, zero_bubble = scheduled(pp_schedule)
    edits = asked(_several(what_if), host_speed)
    edited = edit(prepare(trace, source_gpu=source_gpu, steps=_text(steps)), edits, unprofiled_step_us)
    change = prediction.Change(
        world_size=world_size,
        dp=dp,
        tp=tp,
        pp=pp,
        ep=ep,
        micro_batches=micro_batches,
        chunks=chunks,
        batch=batch,
        sharded=fsdp or None,
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


def _targets(
    gpu: str | Sequence[str] | None, cluster: str | Sequence[str] | None
) -> tuple[Sequence[str], Sequence[str]]:
    """Names of GPUs and of clusters.

    Raises:
        TracekitError: There are none.
    """
    if not gpu and not cluster:
        raise TracekitError("No target was named.", 'Say where to: gpu="h100-sxm", cluster="8xh100-sxm", or both.')
    return _several(gpu), _several(cluster)


def _several(given: Any) -> Sequence[Any]:
    """One, several or no names or numbers, as a list."""
    return () if given is None else [given] if isinstance(given, str | int) else given


def _text(steps: int | str | None) -> str | None:
    """Steps as the command line takes them."""
    return None if steps is None else str(steps)


def compare(
    a: Trace | Report | Predictions,
    b: Trace | Report | Predictions,
    *,
    gpu: str | None = None,
    steps: int | str | None = None,
) -> Comparison:
    """What changed between two measured runs, or how far a prediction was off from the run recorded since.

    Args:
        a: A trace, its report, or predictions.
        b: The other one.
        gpu: Which of the predictions is meant, if there are several.
        steps: The steps to measure, ``7`` or ``"7:9"``; all by default.

    Raises:
        TracekitError: The steps are not in the trace, or it isn't said which prediction is meant.
    """
    from tracekit.reporting.comparison import compare, side

    return compare(side(a, gpu, _text(steps)), side(b, gpu, _text(steps)))


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
    calibration: bool = True,
) -> Sweep:
    """The traced job on many numbers of ranks, the layout that gets most done first.

    Args:
        trace: As :func:`load` gives it.
        gpu: One or several GPUs, each on the usual node around it.
        cluster: One or several clusters.
        world_size: One or several numbers of ranks; by default doubled from the trace's up to the whole cluster.
        tp: Tensor-parallel ranks; by default the trace's.
        pp: Pipeline stages; by default the trace's.
        ep: Ranks that share the experts; by default as in the trace.
        micro_batches: Passes of a step through the stages; by default the trace's times ``pp``.
        pp_schedule: ``"1f1b"``, the default, ``"zero-bubble"``, ``"interleaved"``, or ``"interleaved:4"`` with so many
            chunks of layers on each stage.
        fsdp: Whether replicas of a one-GPU job share out parameters, gradients and optimizer state.
        price: Dollars for an hour of one GPU, by the GPU's name.
        samples: What a rank works through in a step, where the trace doesn't tell.
        source_gpu: The GPU it was recorded on, where the trace doesn't say.
        source_cluster: The cluster it was recorded on, where the GPU doesn't tell.
        steps: The steps to measure, ``7`` or ``"7:9"``; all by default.
        calibration: Whether calibrations kept on this machine are used (``tracekit calibrate``).

    Raises:
        TracekitError: No target is named, the steps are not in the trace, a cluster is unknown, or no layout can be
            worked out.
        PredictorError: A GPU is unknown or its name ambiguous.
    """
    from tracekit.prediction.layout import scheduled
    from tracekit.prediction.sweep import sweep as over_layouts
    from tracekit.replay.run import prepare

    gpus, clusters = _targets(gpu, cluster)
    chunks, zero_bubble = scheduled(pp_schedule)
    return over_layouts(
        prepare(trace, source_gpu=source_gpu, steps=_text(steps)),
        gpus,
        clusters,
        source_cluster=source_cluster,
        world_sizes=_several(world_size),
        tensor_parallel=_several(tp),
        pipeline_parallel=_several(pp),
        expert_parallel=_several(ep),
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

    ``with tk.record() as recording:`` around a loop that calls ``recording.step()`` after each step, on every rank; or
    ``@tk.record()`` above the function that is a step.

    Args:
        folder: Where the trace goes, a file per rank.
        name: The file's name without suffixes.
        wait: Steps to leave alone first.
        timed: Steps to time without the profiler.
        warmup: Steps for the profiler to warm up.
        active: Steps to record.
        overwrite: Whether a trace of that name may be replaced.
        quiet: Whether to say nothing on stderr.

    Raises:
        RecordingError: The trace exists already, can't be written, or the program took too few steps.
        TracekitError: The counts of steps record nothing.
    """
    from tracekit.recording import Recording
    from tracekit.recording.plan import Plan

    return Recording(folder, name=name, plan=Plan(wait, timed, warmup, active), overwrite=overwrite, quiet=quiet)
