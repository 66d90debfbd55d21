"""``tracekit predict``: predict the traced step on other GPUs."""

from functools import partial
from typing import Annotated

import typer

from tracekit.cli.options import (
    BatchFactor,
    Clusters,
    DataParallel,
    ExpertParallel,
    Force,
    Format,
    FullySharded,
    Gpus,
    Json,
    Memory,
    MicroBatches,
    NoCache,
    Output,
    PipelineParallel,
    PipelineSchedule,
    Prices,
    Quiet,
    Ranks,
    Samples,
    SourceCluster,
    SourceGpu,
    Stacks,
    Steps,
    TensorParallel,
    Top,
    Traces,
    Verbose,
    WithoutRules,
    WorldSize,
)  # fmt: skip
from tracekit.cli.what_if_options import HostSpeed, UnprofiledStep, WhatIfs, parse_time_us

MIN_MODELLED_PCT = 95.0
"""Percentage of GPU time that ``--strict`` requires."""
EXIT_NOT_COVERED = 4

Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help=f"Exit with 4 if less than {MIN_MODELLED_PCT:g} % of GPU time is modelled somewhere."
    ),
]
NoCalibration = Annotated[bool, typer.Option("--no-calibration", help="Leave out what `tracekit calibrate` keeps.")]


def predict(
    traces: Traces,
    gpu: Gpus = [],  # noqa: B006 - typer makes a new one
    cluster: Clusters = [],  # noqa: B006
    source_gpu: SourceGpu = None,
    source_cluster: SourceCluster = None,
    world_size: WorldSize = None,
    dp: DataParallel = None,
    tp: TensorParallel = None,
    pp: PipelineParallel = None,
    ep: ExpertParallel = None,
    fsdp: FullySharded = False,
    micro_batches: MicroBatches = None,
    pp_schedule: PipelineSchedule = None,
    batch: BatchFactor = None,
    price: Prices = [],  # noqa: B006
    samples: Samples = None,
    what_if: WhatIfs = [],  # noqa: B006
    host_speed: HostSpeed = None,
    unprofiled_step: UnprofiledStep = None,
    steps: Steps = None,
    without_rule: WithoutRules = [],  # noqa: B006
    top: Top = 10,
    ranks: Ranks = None,
    json: Json = False,
    form: Format = None,
    output: Output = None,
    force: Force = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    stacks: Stacks = False,
    no_calibration: NoCalibration = False,
    strict: Strict = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """How long the traced step would take on other GPUs or clusters, and how sure that is.

    Example: tracekit predict trace.json.gz --gpu h100-sxm --cluster 4x8xb200@ndr400 -o prediction.html
    """
    from tracekit.analysis.self_check import run_self_check as check_graph
    from tracekit.cli.output import show_progress
    from tracekit.cli.read import read_traces
    from tracekit.cli.report_output import check_format, deliver_report, format_command
    from tracekit.parallelism.layout import parse_schedule
    from tracekit.prediction import LayoutRequest, predict_edited, resolve_targets
    from tracekit.prediction import predict as predict_on
    from tracekit.prediction.cost import parse_prices
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.render.graph_check import append_graph_check, as_dict
    from tracekit.reporting import build_prediction_report
    from tracekit.run import prepare_run
    from tracekit.whatif.requested import apply_requested_edits, parse_edits

    check_format(form, output, force, traces)
    if not gpu and not cluster:
        raise typer.BadParameter("say where to: --gpu h100-sxm, --cluster 4x8xh100-sxm@ndr400, or both")
    resolve_targets(gpu, cluster)
    edits = parse_edits(what_if, host_speed)
    chunks, zero_bubble = parse_schedule(pp_schedule)
    with show_progress(quiet) as stage:
        trace = read_traces(traces, ranks, no_cache, memory, stage, stacks)
        run = prepare_run(trace, source_gpu=source_gpu, steps=steps, without_rules=without_rule, progress=stage)
        edited = apply_requested_edits(run, edits, parse_time_us(unprofiled_step))
        stage("predict")
        predict_run = partial(
            predict_on,
            gpus=gpu,
            clusters=cluster,
            source_cluster=source_cluster,
            change=LayoutRequest(
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
            ),
            prices=parse_prices(price),
            samples=samples,
            calibrated=not no_calibration,
        )
        report = build_prediction_report(predict_edited(edited, predict_run), format_command())
        graph = check_graph(run.graph) if verbose else None
    deliver_report(
        report,
        append_graph_check(terminal.render_predicted(report, top), graph, report.streams),
        lambda: as_json.dump_prediction(report, graph=as_dict(graph)),
        json=json,
        form=form,
        output=output,
        quiet=quiet,
    )
    least = min(report.targets, key=lambda target: target.coverage.modelled)
    if strict and least.coverage.modelled < MIN_MODELLED_PCT:
        modelled = f"{least.coverage.modelled:.1f} % of the GPU time is modelled for {least.label}"
        typer.echo(f"tracekit: {modelled}, less than the {MIN_MODELLED_PCT:g} % of --strict", err=True)
        raise typer.Exit(EXIT_NOT_COVERED)
