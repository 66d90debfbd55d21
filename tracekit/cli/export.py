"""``tracekit export``: export the data for other programs."""

from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import (
    Clusters,
    Force,
    Memory,
    NoCache,
    Quiet,
    Ranks,
    SourceGpu,
    Stacks,
    Steps,
    Traces,
    WithoutRules,
)


class ExportFormat(StrEnum):
    """Format of the exported file."""

    PERFETTO = "perfetto"
    PARQUET = "parquet"
    CSV = "csv"


SUFFIXES = {ExportFormat.PERFETTO: (".json", ".gz"), ExportFormat.PARQUET: (".parquet",), ExportFormat.CSV: (".csv",)}


def export(
    traces: Traces,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to; a timeline may end in .gz.")
    ],
    form: Annotated[
        ExportFormat | None,
        typer.Option(
            "--format",
            help="perfetto: a timeline; parquet and csv: a row per launched kernel. Default by the suffix.",
        ),
    ] = None,
    gpu: Annotated[
        list[str], typer.Option("--gpu", "-g", metavar="NAME", help="Add what is predicted on this GPU; repeatable.")
    ] = [],  # noqa: B006 - typer makes a new one
    cluster: Clusters = [],  # noqa: B006
    source_gpu: SourceGpu = None,
    steps: Steps = None,
    without_rule: WithoutRules = [],  # noqa: B006
    ranks: Ranks = None,
    force: Force = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    stacks: Stacks = False,
    quiet: Quiet = False,
) -> None:
    """A timeline for Perfetto with the predicted one beside the measured one, or every kernel as a table.

    Example: tracekit export trace.json.gz --gpu h100-sxm --steps 7 -o timeline.json.gz
    """
    from tracekit.cli.output import check_output, show_progress, write_file
    from tracekit.cli.read import read_traces
    from tracekit.export import launch_tables, perfetto
    from tracekit.prediction import Predictions, predict, resolve_targets
    from tracekit.run import prepare_run

    check_output(output, force, SUFFIXES[form] if form else list(chain(*SUFFIXES.values())), traces)
    form = form or next(form for form, suffixes in SUFFIXES.items() if output.suffix in suffixes)
    resolve_targets(gpu, cluster)
    with show_progress(quiet) as stage:
        trace = read_traces(traces, ranks, no_cache, memory, stage, stacks)
        run = prepare_run(trace, source_gpu=source_gpu, steps=steps, without_rules=without_rule, progress=stage)
        stage("predict")
        predicted = predict(run, gpu, clusters=cluster) if gpu or cluster else Predictions(run, ())
        stage("write")
        if form is ExportFormat.PERFETTO:
            content = perfetto.render_timeline(run, predicted.targets, compress=output.suffix == ".gz")
        else:
            content = launch_tables.encode_launches(run, predicted.targets, form.value)
    write_file(output, content, quiet)
    for refused in predicted.refused:
        typer.echo(f"tracekit: {refused}", err=True)
