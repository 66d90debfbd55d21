"""``tracekit predict``: the traced step on other GPUs."""

from tracekit.cli.options import Force, Gpus, Json, Memory, NoCache, Output, Quiet, Ranks, SourceGpu, Steps, Top, Traces


def predict(
    traces: Traces,
    gpu: Gpus,
    source_gpu: SourceGpu = None,
    steps: Steps = None,
    top: Top = 10,
    ranks: Ranks = None,
    json: Json = False,
    output: Output = None,
    force: Force = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """How long the traced step would take on other GPUs, and how sure that is.

    Example: tracekit predict trace.json.gz --gpu h100-sxm --gpu l40s -o prediction.json
    """
    from predictors import resolve_gpu
    from tracekit.cli.read import read
    from tracekit.cli.screen import check_output, emit, progress
    from tracekit.prediction import predict as predict_on
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.replay.run import prepare
    from tracekit.reporting import build

    check_output(output, force)
    for name in gpu:
        resolve_gpu(name)
    with progress(quiet) as stage:
        trace = read(traces, ranks, no_cache, memory, stage)
        run = prepare(trace, source_gpu=source_gpu, steps=steps, progress=stage)
        stage("predict")
        report = build(run, predict_on(run, gpu).targets)
    emit(
        terminal.predicted(report, top),
        lambda: as_json.predicted(report),
        json=json,
        output=output,
        quiet=quiet,
    )
