"""Predict how long a PyTorch step takes on another GPU or cluster, from profiler traces of the present one.

import tracekit as tk

trace = tk.load("trace.json.gz")
tk.report(trace).findings
tk.predict(trace, gpu=["h100-sxm", "l40s"])["h100-sxm"].speedup
"""

from __future__ import annotations

import warnings
from os import PathLike
from typing import TYPE_CHECKING

from tracekit import interrupts  # noqa: F401  # in front of all that takes time to import
from tracekit.errors import RequestError, TracekitError
from tracekit.request.keywords import refuse_in_python, take_options_of
from tracekit.request.options import (
    ExportFormat,
    ExportRequest,
    FleetRequest,
    PredictRequest,
    ReportRequest,
    ServingRequest,
    ShardRequest,
    StepOptions,
    SweepRequest,
)
from tracekit.request.program_options import SearchRequest
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from distributed import Client

    from tracekit.capturing.search import ProgramVariants
    from tracekit.fleet import FleetReport
    from tracekit.ingest import Inputs, Ranks
    from tracekit.messages import ProgressCallback
    from tracekit.notebook import NotebookPredictions, NotebookReport
    from tracekit.prediction import Predictions
    from tracekit.prediction.sweep import Sweep
    from tracekit.recording import Recording
    from tracekit.reporting import Report
    from tracekit.reporting.comparison import Comparison
    from tracekit.served.answer import ServedTarget
    from tracekit.sharding import ShardingPlans
    from tracekit.trace import Trace

__all__ = [
    "TracekitError",
    "__version__",
    "capture",
    "compare",
    "export_timeline",
    "load",
    "predict",
    "predict_fleet",
    "predict_many",
    "record",
    "report",
    "serving",
    "shard",
    "sweep",
]


def __dir__() -> list[str]:
    return [*__all__]


@refuse_in_python
def load(
    inputs: Inputs,
    *,
    ranks: Ranks = None,
    cache: bool = True,
    memory: str | int | None = None,
    stacks: bool = False,
    progress: ProgressCallback = lambda stage: None,
) -> Trace:
    """Read the PyTorch profiler traces of one job, a file per rank.

    A trace of ops on a CPU, with shapes, becomes that of a captured program: see :func:`capture`.

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
    from tracekit.capturing.recordings import load_recording

    return load_recording(inputs, ranks=ranks, cache=cache, memory=memory, stacks=stacks, progress=progress)


@take_options_of(ReportRequest)
def report(trace: Trace | Predictions, request: ReportRequest) -> NotebookReport:
    """Report where the time of the measured step goes and what limits it.

    Args:
        trace: As returned by :func:`load`; or the result of :func:`predict`, for a report that includes the
            predictions, without options.

    Raises:
        TracekitError: An option is impossible or given with predictions, the steps are not in the trace, or an edit
            finds nothing to change.
        GpuError: The source GPU is unknown or ambiguous.
    """
    from tracekit.messages.requests import PREDICTIONS_WITH_OPTIONS
    from tracekit.notebook import NotebookReport
    from tracekit.prediction import Predictions
    from tracekit.reporting import build_prediction_report
    from tracekit.request import answers

    if isinstance(trace, Predictions):
        if request != ReportRequest():
            raise RequestError(PREDICTIONS_WITH_OPTIONS())
        return NotebookReport.from_report(build_prediction_report(trace))
    return NotebookReport.from_report(answers.report(answers.measure(trace, request), request))


@take_options_of(PredictRequest)
def predict(trace: Trace, request: PredictRequest) -> NotebookPredictions:
    """Predict the traced step on other GPUs or clusters.

    The answer shows itself as a table; ``to_polars()`` and ``to_pandas()`` have its figures.

    Args:
        trace: As returned by :func:`load`.

    Raises:
        TracekitError: An option is impossible, no target is named, the steps are not in the trace, the layout is
            impossible for the job, an edit finds nothing to change, or a calibration is unreadable.
        GpuError: A GPU is unknown or its name ambiguous.
    """
    from tracekit.notebook import NotebookPredictions
    from tracekit.request import answers

    predictions = answers.predict(answers.measure(trace, request), request)
    for doubt in predictions.prices.doubts:
        warnings.warn(str(doubt), stacklevel=FRAMES_TO_CALLER)
    return NotebookPredictions.from_predictions(predictions)


FRAMES_TO_CALLER = 3
"""From a function that takes a request's options up to who called it: where a warning of Python points."""


@refuse_in_python
def predict_fleet(
    inputs: Inputs,
    *,
    engine: str | Client = "local",
    store: str | None = None,
    memory: str | int | None = None,
    progress: ProgressCallback = lambda stage: None,
    **options: Any,
) -> FleetReport:
    """Predict a job of many ranks, rank by rank, in memory that doesn't grow with their number.

    Args:
        inputs: As for :func:`load`.
        engine: ``local`` for this process, ``dask`` for processes of this machine, the address of a Dask scheduler, or
            a ``distributed.Client``.
        store: Folder or URI that all workers reach, for the ranks' tables; each worker's own disk by default.
        memory: Memory limit of one rank's tables.
        progress: Called with what is being done, and for how many ranks it is.
        options: As for :func:`predict`; but there may be no targets.

    Raises:
        TracekitError: An option is impossible, no rank can be read, or the engine can't be reached.
        GpuError: A GPU is unknown or its name ambiguous.
    """
    from tracekit.engine import open_engine
    from tracekit.fleet import ReadingOptions
    from tracekit.request import answers

    request = FleetRequest(**options)
    opened = open_engine(engine)
    try:
        return answers.predict_fleet(inputs, request, opened, progress, ReadingOptions(store, memory=memory))
    finally:
        opened.close()


@refuse_in_python
def capture(
    model: Any,
    *inputs: Any,
    training: bool = False,
    optimizer: str | None = None,
    autocast: str | None = None,
    tf32: bool = False,
    compile: bool = False,
    channels_last: bool = False,
    cuda_graph: bool = False,
    attention: str | None = None,
    precision: str | None = None,
    micro_batches: int = 1,
    stack: str | None = None,
    recompute: str | None = None,
    lora: int | None = None,
    keywords: Mapping[str, Any] | None = None,
    gpu: str = "h100-sxm",
    measured: Trace | None = None,
    batch: int | None = None,
) -> Trace:
    """Capture a step of a PyTorch model that never ran as a trace, without a GPU.

    Its times are predictions, which its reports say; :func:`predict` predicts it on other GPUs from shapes alone.

    Build model and inputs under ``torch.device("meta")``, so that they take no memory. The loss of a training step is
    what the model returns, the ``loss`` of that, or the mean of its first tensor; a function that returns nothing has
    run its own backward pass.

    Args:
        model: A module, or a function; or the name of a program, as the command line takes it: a model's config.json,
            FILE.py:FUNCTION or timm:MODEL.
        inputs: Its arguments.
        training: Whether the step has a backward pass.
        optimizer: The optimizer's step at its end: 'adamw', 'adam', 'sgd', or one of these with 'fused-' before it;
            'adamw-8bit' or 'muon'; None for none.
        autocast: Mixed precision: 'bf16' or 'fp16'.
        tf32: Whether products of fp32 run in TF32.
        compile: Whether torch.compile fuses the model's kernels, as far as rules tell.
        channels_last: Whether images and weights of convolutions lie pixel after pixel, as torch.channels_last has
            them.
        cuda_graph: Whether one CUDA graph launches all kernels.
        attention: How attention is computed: 'eager', 'sdpa' or 'flash'; None as the config or the code says.
        precision: Format of the linear layers' products, forward and backward: 'bf16', 'fp16', 'tf32', 'fp8',
            'fp8_rowwise', 'fp8_delayed', 'fp8_block', 'mxfp8' or 'nvfp4'; None as the model has it.
        micro_batches: Forward and backward passes of a training step, whose gradients add up.
        stack: What runs a training step: 'torchtitan', 'megatron', 'hf' or 'plain'; None where that isn't told.
        recompute: What layers run again in the backward pass, instead of keeping what they make: 'full' for all,
            'selective' without attention and every second product; None for nothing.
        lora: Rank of the adapters that are trained beside the frozen linear layers of the layers that repeat; None to
            train all parameters.
        keywords: Keyword arguments of the model.
        gpu: The GPU whose predicted times the trace holds.
        measured: A recorded trace of the model, on any GPU and at any batch, that corrects its times; then its GPU
            counts.
        batch: Samples of a program that is named; None for its own.

    Raises:
        TracekitError: PyTorch isn't installed, an option is unknown, or the model doesn't run without data.
        GpuError: The GPU is unknown or its name ambiguous.
    """
    from dataclasses import replace

    from tracekit.capturing.options import CaptureOptions
    from tracekit.capturing.program import capture as capture_step
    from tracekit.capturing.sharpen import measure_ops
    from tracekit.capturing.steps import NamedProgram
    from tracekit.capturing.timed_trace import load_captured

    options: dict[str, Any] = {"optimizer": optimizer, "autocast": autocast, "tf32": tf32, "attention": attention}
    options |= {"channels_last": channels_last, "precision": precision, "micro_batches": micro_batches}
    options |= {"recompute": recompute, "lora": lora}
    told = CaptureOptions(train=training, compile=compile, cuda_graph=cuda_graph, stack=stack, **options)
    asked = told.follow_stack()
    if isinstance(model, str):
        step = NamedProgram(model, asked).capture_batch(batch)
    else:
        options["optimizer"] = asked.optimizer
        step = capture_step(model, *inputs, training=training, compiled=asked.compile, keywords=keywords, **options)
        step = replace(step, facts=step.facts.on_stack(stack or ""))
    ops = None if measured is None else measure_ops(measured)
    return load_captured(step, gpu, cuda_graph=asked.cuda_graph, measured=ops)


@take_options_of(SweepRequest)
def sweep(trace: Trace | list[Trace] | tuple[Trace, ...], request: SweepRequest) -> Sweep:
    """Predict the traced job on many numbers of ranks; layouts are sorted by throughput, highest first.

    Args:
        trace: As returned by :func:`load`; or several of :func:`capture`, with different recomputation each.

    Raises:
        TracekitError: An option is impossible, no target is named, the steps are not in the trace, or no layout can be
            predicted.
        GpuError: A GPU is unknown or its name ambiguous.
    """
    from tracekit.request import answers

    traces = trace if isinstance(trace, list | tuple) else [trace]
    return answers.sweep([answers.measure(one, request) for one in traces], request)


@take_options_of(SearchRequest)
def predict_many(config: str | PathLike[str], request: SearchRequest) -> ProgramVariants:
    """Predict many variants of a model's config.json: the values of some keys, in all combinations.

    Variants that are impossible are rows of the table with a reason in place of a time.

    Args:
        config: The config.json of a Hugging Face model.

    Raises:
        TracekitError: An option is impossible, PyTorch or transformers isn't installed, or no variant can be predicted.
        GpuError: A GPU is unknown or its name ambiguous.
    """
    from tracekit.request import answers

    return answers.search(config, request)


@take_options_of(ShardRequest)
def shard(source: Trace | str | PathLike[str] | None, request: ShardRequest) -> list[ShardingPlans]:
    """Plan how the embedding tables of a recommender are sharded over clusters: the plans for each, fastest first.

    Args:
        source: A trace, as returned by :func:`load`; a JSON file of tables; or None where ``table`` gives them.

    Raises:
        TracekitError: An option is impossible, the file can't be read, there are no tables or samples, or the tables
            don't fit.
    """
    from tracekit.request import answers

    return answers.shard(source, request)


@take_options_of(ServingRequest)
def serving(
    config: str | PathLike[str] | tuple[str | PathLike[str], Trace], request: ServingRequest
) -> list[ServedTarget]:
    """Tell what users of a served model wait for under a load, on each target.

    Args:
        config: The model's config.json; or that and a trace of its engine, which calibrates the steps.

    Raises:
        TracekitError: An option is impossible, there is no target, the config can't be read or has layers whose kernels
            aren't known, or the model or a request doesn't fit.
        GpuError: A GPU is unknown or its name ambiguous.
    """
    from tracekit.request import answers

    path, *traces = config if isinstance(config, tuple) else (config,)
    return answers.serving(path, request, traces)


@take_options_of(ExportRequest)
def export_timeline(trace: Trace, request: ExportRequest) -> bytes:
    """Export a timeline for Perfetto, compressed with gzip: the measured run, and the predictions beside it.

    Args:
        trace: As returned by :func:`load`.

    Raises:
        TracekitError: As :func:`predict`; but there may be no target.
        GpuError: A GPU is unknown or its name ambiguous.
    """
    from tracekit.request import answers

    run = answers.measure(trace, request)
    return answers.export(run, request, ExportFormat.PERFETTO)[0]


@refuse_in_python
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

    wanted = StepOptions(steps=steps).step_range
    return compare(to_side(a, gpu, wanted), to_side(b, gpu, wanted))


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
    from tracekit.recording.recorder import RecordingPlan

    return Recording(
        folder, name=name, plan=RecordingPlan(wait, timed, warmup, active), overwrite=overwrite, quiet=quiet
    )
