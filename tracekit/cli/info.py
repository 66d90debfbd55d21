"""``tracekit info``: what is in a trace."""

from tracekit.cli.options import Json, Quiet, SourceGpu, Steps, TracePath


def info(
    trace: TracePath,
    source_gpu: SourceGpu = None,
    steps: Steps = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What is in a trace: GPU, steps, how much can be modelled, how well the replay fits.

    Example: tracekit info trace.json.gz
    """
    from tracekit.cli.screen import emit, progress
    from tracekit.ingest import load
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.replay.run import prepare
    from tracekit.reporting import build

    with progress(quiet) as stage:
        report = build(prepare(load(trace), source_gpu=source_gpu, steps=steps, progress=stage))
    emit(terminal.info(report), lambda: as_json.info(report), json=json, output=None, quiet=quiet)
