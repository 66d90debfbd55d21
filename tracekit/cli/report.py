"""``tracekit report``: where the measured time goes."""

from tracekit.cli.edits import HostSpeed, UnprofiledStep, WhatIfs, to_us
from tracekit.cli.options import (
    Force,
    Format,
    Json,
    Memory,
    NoCache,
    Output,
    Quiet,
    Ranks,
    SourceGpu,
    Stacks,
    Steps,
    Top,
    Traces,
    Verbose,
)


def report(
    traces: Traces,
    source_gpu: SourceGpu = None,
    steps: Steps = None,
    what_if: WhatIfs = [],  # noqa: B006 - typer makes a new one
    host_speed: HostSpeed = None,
    unprofiled_step: UnprofiledStep = None,
    top: Top = 10,
    ranks: Ranks = None,
    json: Json = False,
    form: Format = None,
    output: Output = None,
    force: Force = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    stacks: Stacks = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Where the measured step's time goes and what holds it back.

    Example: tracekit report trace.json.gz --top 20 --what-if 'scale(family=gemm, 0.5)'
    """
    from tracekit.cli.forms import check, command, deliver
    from tracekit.cli.read import read
    from tracekit.cli.screen import progress
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.render.check import as_dict, below
    from tracekit.replay.check import check as check_graph
    from tracekit.replay.edit import asked, edit
    from tracekit.replay.run import prepare
    from tracekit.reporting import build

    check(form, output, force, traces)
    edits = asked(what_if, host_speed)
    with progress(quiet) as stage:
        trace = read(traces, ranks, no_cache, memory, stage, stacks)
        run = prepare(trace, source_gpu=source_gpu, steps=steps, progress=stage)
        edited = edit(run, edits, to_us(unprofiled_step))
        built = build(edited.before, command=command(), what_if=edited)
        graph = check_graph(run.graph) if verbose else None
    deliver(
        built,
        below(terminal.measured(built, top), graph, built.streams),
        lambda: as_json.measured(built, top, as_dict(graph)),
        json=json,
        form=form,
        output=output,
        quiet=quiet,
    )
