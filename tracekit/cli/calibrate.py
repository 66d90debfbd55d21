"""``tracekit calibrate``: measurements on a GPU that improve later predictions for it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.completion import complete_gpus
from tracekit.cli.options import Force, Json, Memory, Quiet

if TYPE_CHECKING:
    from predictors import Gpu
    from tracekit.calibration import Calibration

Result = Annotated[
    Path | None, typer.Argument(metavar="RESULT.json", help="What the bench script wrote.", show_default=False)
]
Bench = Annotated[bool, typer.Option("--bench", help="Print the script to run on the GPU's machine (plain PyTorch).")]
CalibrationTraces = Annotated[
    list[str] | None,
    typer.Option("--trace", "-t", metavar="TRACE", help="Take a trace recorded on the GPU, of any job."),
]
Host = Annotated[
    bool, typer.Option("--host", help="Measure this machine's CPU in a quarter of a minute, without a GPU.")
]
List = Annotated[bool, typer.Option("--list", help="Show what is kept.")]
Remove = Annotated[
    str | None,
    typer.Option("--remove", metavar="GPU", help="Forget a GPU's calibration.", autocompletion=complete_gpus),
]
CalibratedGpu = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        "-g",
        metavar="NAME",
        help="The GPU, where the file doesn't say or says it wrong.",
        autocompletion=complete_gpus,
    ),
]
Script = Annotated[
    list[Path] | None, typer.Option("--output", "-o", metavar="FILE", help="Write the script to a file.")
]


def calibrate(
    result: Result = None,
    bench: Bench = False,
    trace: CalibrationTraces = None,
    gpu: CalibratedGpu = None,
    host: Host = False,
    list_: List = False,
    remove: Remove = None,
    json: Json = False,
    output: Script = None,
    force: Force = False,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Measurements on a GPU that sharpen every later prediction for it; one set for each GPU is kept.

    Example: tracekit calibrate --bench > bench.py

    Then, on the GPU's machine: python bench.py -o RESULT.json

    Then, here: tracekit calibrate RESULT.json
    """
    if sum(map(bool, (result, bench, trace, host, list_, remove))) != 1:
        raise typer.BadParameter("give one of RESULT.json, --bench, --trace, --host, --list, --remove")
    if output and not bench:
        raise typer.BadParameter("-o goes with --bench, whose script it names")
    if bench:
        _print_script(output, force, quiet)
    elif host:
        _show_host(json, quiet)
    elif list_:
        _show_list(json)
    elif remove:
        from tracekit import calibration
        from tracekit.cli.output import print_line

        print_line(f"removed the calibration of {calibration.remove(remove)}")
    else:
        _store_calibration(*_read_measurements(result, trace or [], gpu, memory, quiet), json)


def _print_script(output: Sequence[Path] | None, force: bool, quiet: bool) -> None:
    from importlib.resources import files

    from tracekit.cli.output import check_outputs, write_files

    text = files("predictors").joinpath("microbench.py").read_text(encoding="utf-8")
    if not output:
        typer.echo(text, nl=False)
        return
    write_files(dict.fromkeys(check_outputs(output, force, (".py",)), text), quiet)


def _show_host(json: bool, quiet: bool) -> None:
    from tracekit.cli.output import emit
    from tracekit.cli.progress import show_progress
    from tracekit.hosts.bench import bench_host
    from tracekit.messages import requests
    from tracekit.render import hosts as render

    with show_progress(quiet) as stage:
        stage(requests.MEASURING_HOST())
        found = bench_host()
    emit(render.render_bench(found), lambda: render.serialize_bench(found), json=json)


def _show_list(json: bool) -> None:
    from tracekit import calibration
    from tracekit.cli.output import emit
    from tracekit.render import calibrations as render

    kept = calibration.load_all()
    emit(render.render_calibration_table(kept), lambda: render.serialize_calibrations(kept), json=json)


def _read_measurements(
    result: Path | None, trace: list[str], gpu: str | None, memory: str | None, quiet: bool
) -> "tuple[Calibration, Gpu]":
    from tracekit import calibration

    if result is not None:
        return calibration.from_bench(result, gpu)
    from tracekit.cli.output import say
    from tracekit.cli.progress import show_progress
    from tracekit.cli.read import read_traces
    from tracekit.run import prepare_run

    with show_progress(quiet) as stage:
        run = prepare_run(read_traces(trace, None, False, memory, stage), source_gpu=gpu, progress=stage)
    if run.provenance.source_doubt:
        say(str(run.provenance.source_doubt))
    return calibration.from_run(run)


def _store_calibration(measured: "Calibration", gpu: "Gpu", json: bool) -> None:
    from predictors.calibration_kernels import cross_validate_calibration
    from tracekit import calibration
    from tracekit.cli.output import emit
    from tracekit.render import calibrations as render

    errors = cross_validate_calibration(measured.kernels, gpu)
    kept = calibration.select_helpful_families(measured, errors, gpu)
    path = calibration.save(kept)
    emit(
        render.render_new_calibration(kept, errors, path),
        lambda: render.serialize_new_calibration(kept, errors, path),
        json=json,
    )
