"""Answer requests: one function for each answer, which all front ends call."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from predictors import resolve_gpu
from tracekit import reporting
from tracekit.analysis.profiler_overhead import remove_profiler_overhead
from tracekit.comm import load_cluster
from tracekit.errors import OutputError, RequestError
from tracekit.ingest import Inputs
from tracekit.messages import Message, ProgressCallback, fleets, name_option, requests
from tracekit.messages import layouts as sharding_messages
from tracekit.messages import serving as serving_messages
from tracekit.messages.requests import CHAKRA_OF_ONE_TARGET, TRACE_OF_ONE_TARGET_ONLY
from tracekit.prediction import Predictions
from tracekit.replay.engine import replay
from tracekit.reporting import Report
from tracekit.request.option import split_values
from tracekit.request.options import (
    EditOptions,
    ExportFormat,
    ExportRequest,
    ReportRequest,
    RunOptions,
    ServingRequest,
    ShardRequest,
    SweepRequest,
    TargetOptions,
)
from tracekit.run import MeasuredRun, prepare_run
from tracekit.trace import Trace
from tracekit.whatif import apply_edits

if TYPE_CHECKING:
    from tracekit.capturing.search import ProgramVariants
    from tracekit.comm import Cluster
    from tracekit.engine import Engine
    from tracekit.fleet import FleetReport, ReadingOptions
    from tracekit.prediction.sweep import Sweep
    from tracekit.request.program_options import SearchRequest
    from tracekit.served.answer import ServedTarget, ServingQuestion
    from tracekit.sharding import PlannedTable, ShardingPlans


def measure(
    trace: Trace,
    request: RunOptions,
    progress: ProgressCallback = lambda stage: None,
    *,
    rank: int | None = None,
) -> MeasuredRun:
    """Prepare the run that a request is about.

    Args:
        trace: The trace.
        request: The steps to measure, and what is known of them.
        progress: Called with the name of each stage as it begins.
        rank: The rank to measure; by default all ranks that were read, together.

    Raises:
        TracekitError: As :func:`tracekit.run.prepare_run`.
    """
    return prepare_run(
        _put_on_source(trace, request),
        source_gpu=request.source_gpu,
        steps=request.step_range,
        rank=rank,
        without_rules=split_values(request.without_rule),
        model_config=request.model_config,
        framework=request.framework,
        indices=request.index_pattern,
        accepted_tokens=request.accepted_tokens,
        progress=progress,
    )


def _put_on_source(trace: Trace, request: RunOptions) -> Trace:
    """Return the trace with the times of its CPU, where a CPU is named as its source.

    Raises:
        RequestError: It isn't a CPU's, or GPUs are among the targets.
    """
    if request.source_gpu is None or not (cpu := resolve_gpu(request.source_gpu).gpu).is_cpu:
        return trace
    if trace.recording is None and trace.ranks[0].capture_facts is not None:
        return trace
    if isinstance(request, TargetOptions) and (
        request.clusters or not all(resolve_gpu(name).gpu.is_cpu for name in request.gpus)
    ):
        raise RequestError(requests.CPU_TIMES_FOR_GPU(cpu=cpu.slug))
    from tracekit.capturing.recordings import put_on_cpu

    return put_on_cpu(trace, cpu)


def report(
    run: MeasuredRun, request: ReportRequest, command: str | None = None, *, with_timelines: bool = True
) -> Report:
    """Report where the time of the measured step goes.

    Args:
        run: The measured run.
        request: The edits.
        command: The command line that requested it.
        with_timelines: As for :func:`tracekit.reporting.build_report`.

    Raises:
        TracekitError: An edit finds nothing to change.
    """
    run = _remove_overhead(run, request)
    what_if = apply_edits(run.program, request.edits)
    return reporting.build_report(run, command=command, what_if=what_if, with_timelines=with_timelines)


def predict(run: MeasuredRun, request: ExportRequest, progress: ProgressCallback = lambda stage: None) -> Predictions:
    """Predict the step on the request's targets; there may be none.

    Args:
        run: The measured run.
        request: The targets, the layout and the edits.
        progress: Called with the name of each stage as it begins.

    Raises:
        TracekitError: No target can be predicted, an edit finds nothing to change, or the trace of a host tells none.
    """
    from tracekit.prediction.predict_run import predict

    return predict(_remove_overhead(run, request), request, progress)


def list_refused_options(request: ExportRequest) -> list[str]:
    """List the options of a request that only a prediction in one piece has."""
    from tracekit.fleet.model import ONE_PIECE_OPTIONS

    return [name for name in ONE_PIECE_OPTIONS if getattr(request, name) is not None]


def predict_fleet(
    inputs: Inputs,
    request: ExportRequest,
    engine: "Engine",
    progress: ProgressCallback = lambda stage: None,
    reading: "ReadingOptions | None" = None,
) -> "FleetReport":
    """Predict a job of many ranks, rank by rank.

    Args:
        inputs: The traces, which are not read here.
        request: What is known of them, and the targets.
        engine: Works on the ranks.
        progress: Called with what is being done.
        reading: How the ranks are read and kept; None for ``DEFAULT_READING``.

    Raises:
        TracekitError: As :func:`predict`; or the profiler's overhead is to be taken out, which takes all ranks at once.
    """
    from tracekit.fleet import DEFAULT_READING, predict_fleet

    for option in list_refused_options(request):
        raise RequestError(fleets.FLEET_OPTION(option=name_option(option.replace("_", "-"))))
    return predict_fleet(inputs, request, engine, progress, reading or DEFAULT_READING)


def sweep(runs: MeasuredRun | Sequence[MeasuredRun], request: SweepRequest) -> "Sweep":
    """Predict the job in many layouts.

    Args:
        runs: The measured run; or those of one program, captured with several kinds of recomputation.
        request: The targets and the layouts.

    Raises:
        TracekitError: No layout can be predicted, or the trace of a host tells none.
    """
    from tracekit.prediction.sweep import sweep_variants

    return sweep_variants([runs] if isinstance(runs, MeasuredRun) else runs, request)


def search(
    config: str | PathLike[str], request: "SearchRequest", progress: ProgressCallback = lambda stage: None
) -> "ProgramVariants":
    """Predict many variants of a model's config.json; those that are impossible have a reason in place of a time.

    Args:
        config: The config.json.
        request: The keys that are varied, how the model is captured, and the targets.
        progress: Called with the name of each stage as it begins.

    Raises:
        TracekitError: An option is impossible, or no variant can be predicted.
    """
    from tracekit.capturing.search import ProgramVariants, VariantCaptures, VariantSearch, predict_each
    from tracekit.capturing.timed_trace import CaptureSetting
    from tracekit.capturing.variants import list_variants

    axes = request.axes
    variants = list_variants(str(config), axes)
    if not request.shares_graphs:

        def predict_alone(path: str) -> tuple[Trace, Predictions]:
            trace, left = request.capture_trace(path, request)
            return trace, predict(measure(trace, left), left)

        return ProgramVariants.of(axes, list(predict_each(variants, str(config), predict_alone, progress)))
    alone = replace(request, batch=None, micro_batches=None)
    batch = None if request.batch_factor is None else int(request.batch_factor)
    options = request.capture
    search = VariantSearch(
        captures=VariantCaptures(options, batch, str(config)),
        setting=CaptureSetting(request.index_pattern, not request.no_calibration),
        cuda_graph=options.cuda_graph,
        gpu=request.source_gpu,
        measure=lambda trace: measure(trace, alone),
        predict=lambda run: predict(run, alone),
    )
    return ProgramVariants.of(axes, list(search.run(variants, progress)))


def shard(
    source: Trace | str | PathLike[str] | None,
    request: ShardRequest,
    progress: ProgressCallback = lambda stage: None,
) -> "list[ShardingPlans]":
    """Plan how embedding tables are sharded over clusters.

    Args:
        source: A trace, a file of tables, or neither where the request has tables.
        request: The clusters, the tables and the batch.
        progress: Called with the name of each stage as it begins.

    Returns:
        The plans for each cluster, in the order of the request.

    Raises:
        TracekitError: The file can't be read, there are no tables or samples, or the tables don't fit.
    """
    from tracekit.sharding import ShardingSetting, plan_sharding
    from tracekit.sharding.tables import ShardingError

    tables, batch, notes = _find_sharded_tables(source, request, progress)
    batch = request.batch or batch
    if tables and not batch:
        raise ShardingError(sharding_messages.SHARDING_BATCH_MISSING())
    found = []
    for name in request.clusters:
        progress(requests.PLANNING_SHARDS(cluster=name))
        setting = ShardingSetting(load_cluster(name), batch, request.dense_memory * 2**30, request.dense_time_us)
        plans = plan_sharding(tables, setting)
        found.append(replace(plans, notes=(*plans.notes, *notes)))
    return found


def _find_sharded_tables(
    source: Trace | str | PathLike[str] | None, request: ShardRequest, progress: ProgressCallback
) -> "tuple[list[PlannedTable], int, list[Message]]":
    """Find the tables to shard, the samples of a rank where the source tells them, and what is assumed."""
    from tracekit.models.dlrm import parse_table_spec
    from tracekit.sharding.tables import DEFAULT_WEIGHT_TYPE, TableDefaults, expand_specs, find_tables, read_table_file

    defaults = TableDefaults(request.data_type or DEFAULT_WEIGHT_TYPE, request.optimizer, request.index_pattern)
    given = expand_specs([parse_table_spec(text) for text in split_values(request.table)], defaults)
    if not isinstance(source, Trace):
        tables, batch = ([], 0) if source is None else read_table_file(Path(source), defaults)
        return given or tables, batch, []
    tables, batch = find_tables(measure(source, request, progress).program, defaults)
    if given:
        return given, batch, []
    if request.data_type is not None:
        tables = [replace(table, weight_type=request.data_type) for table in tables]
    return tables, batch, [sharding_messages.SHARDING_TRACE_TABLES_EQUAL()]


def serving(
    config: str | PathLike[str] | bytes,
    request: ServingRequest,
    traces: Sequence[Trace] = (),
    progress: ProgressCallback = lambda stage: None,
) -> "list[ServedTarget]":
    """Tell what users of a served model wait for under a load, on each target.

    Args:
        config: The model's config.json: its path, or its text as bytes.
        request: The targets, the engine, the load and the limits.
        traces: Traces of the engine serving the model, whose steps calibrate those predicted.
        progress: Called with the name of each stage as it begins.

    Returns:
        The targets in the order of the request.

    Raises:
        TracekitError: There is no target, the config can't be read or has layers whose kernels aren't known, or the
            model or a request fits on none of them.
    """
    from tracekit.prediction.targets import resolve_prices, resolve_targets
    from tracekit.served.answer import serve_on
    from tracekit.served.calibrate import calibrate_steps, measure_engine_steps
    from tracekit.served.kv_memory import ServingError

    targets = resolve_targets(split_values(request.gpu), split_values(request.cluster), unlike_gpus=False)
    if not targets:
        raise RequestError(requests.NO_TARGET())
    question = _ask_of_served(config, request)
    if traces:
        if question.engine.stages > 1:
            raise RequestError(serving_messages.SERVING_TRACE_OF_STAGE())
        runs = [measure(trace, RunOptions(source_gpu=request.source_gpu), progress) for trace in traces]
        gpus = {run.gpu.slug for run in runs if run.gpu is not None}
        if len(gpus) != 1 or any(run.gpu is None for run in runs):
            several = serving_messages.SERVING_TRACES_OF_SEVERAL(gpus=sorted(gpus))
            raise RequestError(several if len(gpus) > 1 else serving_messages.SERVING_TRACE_WITHOUT_GPU())
        own = calibrate_steps(
            measure_engine_steps(runs),
            question.model,
            question.engine,
            _find_node(gpus.pop(), question.engine.world_size),
            question.mean_context,
        )
        question = replace(question, calibration=own)
    prices = resolve_prices(request.given_prices, None, None, targets)
    found: list[ServedTarget] = []
    misfits: dict[str, ServingError] = {}
    for target in targets:
        cluster = target.cluster or _find_node(target.gpu.gpu.slug, question.engine.world_size)
        if cluster.gpus < question.engine.world_size:
            raise RequestError(
                serving_messages.SERVING_CLUSTER_SMALL(
                    cluster=cluster.slug, gpus=cluster.gpus, ranks=question.engine.world_size
                )
            )
        progress(serving_messages.SERVING_TARGET(gpu=cluster.gpu.slug))
        try:
            found.append(serve_on(question, cluster, prices.find(cluster.gpu, target.cluster)))
        except ServingError as error:
            misfits[cluster.slug if target.cluster else cluster.gpu.slug] = error
    if misfits:
        if not found:
            raise next(iter(misfits.values()))
        found[0] = replace(found[0], notes=(*found[0].notes, serving_messages.SERVING_LEFT_OUT(gpus=[*misfits])))
    return found


def _find_node(gpu: str, ranks: int) -> "Cluster":
    """Return a node of a GPU with as many as an engine needs."""
    return load_cluster(f"{max(ranks, 1)}x{gpu}")


def _ask_of_served(config: str | PathLike[str] | bytes, request: ServingRequest) -> "ServingQuestion":
    """Return what a request asks of a model."""
    from predictors.kernel_identity import parse_framework
    from tracekit.models.llm import read_config_text
    from tracekit.request.options.run import parse_time_us
    from tracekit.request.options.serving import DEFAULT_ENGINE, DEFAULT_TOKENS
    from tracekit.served.answer import Limits, ServingQuestion
    from tracekit.served.model import COLLECTIVES, ServingEngine
    from tracekit.served.precision import parse_served_model
    from tracekit.served.requests import make_requests, read_lengths
    from tracekit.served.simulate import RECORDED, Pattern, RequestLoad

    framework, version = parse_framework(request.framework or DEFAULT_ENGINE)
    if request.lengths is not None:
        lengths = read_lengths(request.lengths)
    else:
        lengths = make_requests(1, request.input_tokens or DEFAULT_TOKENS, request.output_tokens or DEFAULT_TOKENS)
    loads = [RequestLoad(concurrency=one) for one in request.concurrencies]
    loads += [RequestLoad(rate=request.rate)] if request.rate is not None else []
    loads += [RECORDED] if not loads and lengths.are_recorded else []
    ttft_ms, tpot_ms = (
        None if one is None else parse_time_us(one) / 1e3 for one in (request.ttft_below, request.tpot_below)
    )
    text, name = (config, "config.json") if isinstance(config, bytes) else (read_config_text(Path(config)), str(config))
    return ServingQuestion(
        model=parse_served_model(text, name, request.precision, request.cache_type),
        engine=ServingEngine(
            framework,
            version,
            request.tp or 1,
            request.ep or 1,
            request.pp or 1,
            backend=request.all2all_backend or COLLECTIVES,
        ),
        pattern=Pattern(lengths, request.spread, request.requests),
        loads=tuple(loads),
        limits=Limits(ttft_ms, tpot_ms, request.percentile or Limits().percentile),
        max_tokens=request.max_batched_tokens,
        max_sequences=request.max_sequences,
        memory_share=request.memory_share,
        hit_rate=request.prefix_hits or 0.0,
        draft_tokens=request.draft_tokens or 0,
        tokens_per_step=request.accepted_tokens or 1.0,
        replicas=request.replicas,
        link_gbps=request.cache_link or 50.0,
    )


def export(
    run: MeasuredRun, request: ExportRequest, form: ExportFormat, *, compress: bool = True
) -> tuple[bytes, Predictions]:
    """Encode the measured run, and the predictions beside it, for other programs.

    Args:
        run: The measured run.
        request: The targets, the layout and the edits.
        form: A timeline, or a row per launched kernel.
        compress: Compress a timeline with gzip.

    Returns:
        The content of the file, and the predictions in it.

    Raises:
        TracekitError: As :func:`predict`; or edits or a layout have no target, or a predicted trace has several.
    """
    predicted = predict_exported(run, request)
    return encode_export(predicted, form, compress=compress), predicted


def export_execution_traces(run: MeasuredRun, request: ExportRequest) -> tuple[dict[str, bytes], Predictions]:
    """Encode the measured steps, or those predicted for one target, as Chakra's execution traces.

    Args:
        run: The measured run.
        request: The target, if any, the layout and the edits.

    Returns:
        The content of each rank's file by its name, and the predictions.

    Raises:
        TracekitError: As :func:`predict`; or there are several targets.
    """
    predicted = predict_exported(run, request)
    return encode_execution_traces(predicted), predicted


def predict_exported(run: MeasuredRun, request: ExportRequest) -> Predictions:
    """Predict what is exported beside the measured run; there may be no targets, but then nothing may change.

    Raises:
        TracekitError: As :func:`predict`; or edits or a layout have no target.
    """
    if request.edits or request.layout.has_changes:
        request.require_target()
    return predict(run, request)


def encode_export(predicted: Predictions, form: ExportFormat, *, compress: bool = True) -> bytes:
    """Encode a run and its predictions as one file; arguments as for :func:`export`.

    Raises:
        OutputError: A predicted trace has several targets.
    """
    from tracekit.export import kineto, launch_tables, perfetto

    if form is ExportFormat.PERFETTO:
        return perfetto.render_timeline(predicted.run, predicted.targets, compress=compress)
    if form is ExportFormat.KINETO:
        if len(predicted.targets) != 1:
            raise OutputError(TRACE_OF_ONE_TARGET_ONLY(targets=len(predicted.targets)))
        return kineto.render_predicted_trace(predicted.targets[0], compress=compress)
    return launch_tables.encode_launches(predicted.run, predicted.targets, form.value)


def encode_execution_traces(predicted: Predictions) -> dict[str, bytes]:
    """Encode a run, or the prediction of it, as Chakra's execution traces: the content of each rank's file by its name.

    Raises:
        OutputError: There are several targets.
    """
    from tracekit.export import chakra

    if len(predicted.targets) > 1:
        raise OutputError(CHAKRA_OF_ONE_TARGET(targets=len(predicted.targets)))
    target = predicted.targets[0] if predicted.targets else None
    program = target.program if target else predicted.run.program
    timeline = target.replay_timeline() if target else replay(program.graph)
    return chakra.render_execution_traces(program, timeline)


def _remove_overhead(run: MeasuredRun, request: EditOptions) -> MeasuredRun:
    """Remove the profiler's overhead if the step time without the profiler was given."""
    step_time_us = request.unprofiled_step_us
    return run if step_time_us is None else remove_profiler_overhead(run, step_time_us)
