"""``tracekit sweep``: predict the traced job in many layouts."""

from collections.abc import Callable
from typing import Annotated

import typer

from tracekit.cli.options import (
    Clusters,
    Force,
    FullySharded,
    Gpus,
    Json,
    Memory,
    MicroBatches,
    NoCache,
    Output,
    PipelineSchedule,
    Prices,
    Quiet,
    Ranks,
    Samples,
    SourceCluster,
    SourceGpu,
    Steps,
    Traces,
    WithoutRules,
)
from tracekit.cli.predict import NoCalibration

WorldSizes = Annotated[
    list[int],
    typer.Option("--world-size", metavar="N", min=1, help="Ranks; repeatable. Default: doubled up to the cluster."),
]
TensorParallels = Annotated[
    list[int], typer.Option("--tp", metavar="N", min=1, help="Tensor-parallel ranks; repeatable. Default: the trace's.")
]
PipelineParallels = Annotated[
    list[int], typer.Option("--pp", metavar="N", min=1, help="Pipeline stages; repeatable. Default: the trace's.")
]
ExpertParallels = Annotated[
    list[int],
    typer.Option("--ep", metavar="N", min=1, help="Expert-parallel ranks; repeatable. Default: the trace's."),
]
SUFFIXES = (".json", ".md", ".xlsx", ".csv", ".parquet", ".txt")
Top = Annotated[int, typer.Option("--top", metavar="N", min=1, help="Layouts to list.")]


def sweep(
    traces: Traces,
    gpu: Gpus = [],  # noqa: B006 - typer makes a new one
    cluster: Clusters = [],  # noqa: B006
    world_size: WorldSizes = [],  # noqa: B006
    tp: TensorParallels = [],  # noqa: B006
    pp: PipelineParallels = [],  # noqa: B006
    ep: ExpertParallels = [],  # noqa: B006
    micro_batches: MicroBatches = None,
    pp_schedule: PipelineSchedule = None,
    fsdp: FullySharded = False,
    price: Prices = [],  # noqa: B006
    samples: Samples = None,
    source_gpu: SourceGpu = None,
    source_cluster: SourceCluster = None,
    steps: Steps = None,
    without_rule: WithoutRules = [],  # noqa: B006
    top: Top = 20,
    ranks: Ranks = None,
    json: Json = False,
    output: Output = None,
    force: Force = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    no_calibration: NoCalibration = False,
    quiet: Quiet = False,
) -> None:
    """The traced job on many numbers of ranks: which layout gets most done, and from where on more ranks help less.

    Example: tracekit sweep trace.json.gz --cluster 64x8xh100-sxm@ndr400 --price h100-sxm=2.49
    """
    from tracekit.cli.output import as_text, check_output, emit, show_progress, write_file
    from tracekit.cli.read import read_traces
    from tracekit.parallelism.layout import parse_schedule
    from tracekit.prediction.cost import parse_prices
    from tracekit.prediction.sweep import sweep as over_layouts
    from tracekit.prediction.targets import resolve_targets
    from tracekit.render import sweep as render
    from tracekit.run import prepare_run

    check_output(output, force, SUFFIXES, traces)
    if not gpu and not cluster:
        raise typer.BadParameter("say where to: --cluster 64x8xh100-sxm@ndr400, --gpu h100-sxm, or both")
    resolve_targets(gpu, cluster)
    chunks, zero_bubble = parse_schedule(pp_schedule)
    with show_progress(quiet) as stage:
        trace = read_traces(traces, ranks, no_cache, memory, stage)
        run = prepare_run(trace, source_gpu=source_gpu, steps=steps, without_rules=without_rule, progress=stage)
        stage("predict layouts")
        found = over_layouts(
            run,
            gpu,
            cluster,
            source_cluster=source_cluster,
            world_sizes=world_size,
            tensor_parallel=tp,
            pipeline_parallel=pp,
            expert_parallel=ep,
            micro_batches=micro_batches,
            chunks=chunks,
            zero_bubble=zero_bubble,
            sharded=fsdp,
            prices=parse_prices(price),
            samples=samples,
            calibrated=not no_calibration,
        )
    screen = render.render_sweep(found, top)
    emit(screen, lambda: render.as_json(found), json=json)
    if output is not None:
        forms: dict[str, Callable[[], str | bytes]] = {
            ".json": lambda: render.as_json(found),
            ".md": lambda: render.render_markdown(found),
            ".xlsx": lambda: render.render_workbook(found),
            ".csv": lambda: found.table.write_csv(),
            ".parquet": lambda: render.encode_parquet(found),
            ".txt": lambda: as_text(screen),
        }
        write_file(output, forms[output.suffix](), quiet)
