"""Commands that set up this machine or look up what is known: from ``calibrate`` to ``demo``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.arguments import (
    Force,
    Json,
    Memory,
    Quiet,
    complete_clusters,
    complete_gpus,
    complete_subjects,
    expand_groups,
)
from tracekit.cli.command import Printing
from tracekit.format import format_quantity

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
Cpu = Annotated[
    bool, typer.Option("--cpu", help="Measure this machine's CPU as a device, and write its file for --gpu (-o FILE).")
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
    list[Path] | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the script, or the CPU's file, to a file."),
]


@expand_groups
def calibrate(
    command: Printing,
    result: Result = None,
    bench: Bench = False,
    trace: CalibrationTraces = None,
    gpu: CalibratedGpu = None,
    host: Host = False,
    cpu: Cpu = False,
    list_: List = False,
    remove: Remove = None,
    output: Script = None,
    force: Force = False,
    memory: Memory = None,
) -> None:
    """Measurements on a GPU that sharpen every later prediction for it; one set for each GPU is kept.

    Example: tracekit calibrate --bench > bench.py

    Then, on the GPU's machine: python bench.py -o RESULT.json

    Then, here: tracekit calibrate RESULT.json

    Example: tracekit calibrate --cpu -o cpu.toml
    """
    if sum(map(bool, (result, bench, trace, host, cpu, list_, remove))) != 1:
        raise typer.BadParameter("give one of RESULT.json, --bench, --trace, --host, --cpu, --list, --remove")
    if output and not (bench or cpu):
        raise typer.BadParameter("-o goes with --bench and --cpu, whose file it names")
    if bench:
        _print_script(output, force, command)
    elif host:
        _show_host(command)
    elif cpu:
        _write_cpu(output, force, command)
    elif list_:
        _show_calibrations(command)
    elif remove:
        from tracekit import calibration
        from tracekit.cli.output import print_line

        print_line(f"removed the calibration of {calibration.remove(remove)}")
    else:
        _store_calibration(*_read_measurements(result, trace or [], gpu, memory, command), command)


def _print_script(output: Sequence[Path] | None, force: bool, command: Printing) -> None:
    from importlib.resources import files

    from tracekit.cli.output import check_outputs

    text = files("predictors").joinpath("microbench.py").read_text(encoding="utf-8")
    if not output:
        typer.echo(text, nl=False)
        return
    command.write(dict.fromkeys(check_outputs(output, force, (".py",)), text))


def _write_cpu(output: Sequence[Path] | None, force: bool, command: Printing) -> None:
    from tracekit.cli.output import check_outputs
    from tracekit.hosts.cpu_bench import bench_cpu
    from tracekit.messages import requests

    paths = check_outputs(output, force, (".toml",)) if output else ()
    with command.show_progress() as stage:
        stage(requests.MEASURING_CPU())
        text = bench_cpu().to_toml()
    if paths:
        command.write(dict.fromkeys(paths, text))
    else:
        typer.echo(text, nl=False)


def _show_host(command: Printing) -> None:
    from tracekit.hosts.bench import bench_host
    from tracekit.messages import requests
    from tracekit.render import machines as render

    with command.show_progress() as stage:
        stage(requests.MEASURING_HOST())
        found = bench_host()
    command.emit(render.render_bench(found), lambda: render.serialize_bench(found))


def _show_calibrations(command: Printing) -> None:
    from tracekit import calibration
    from tracekit.render import machines as render

    kept = calibration.load_all()
    command.emit(render.render_calibration_table(kept), lambda: render.serialize_calibrations(kept))


def _read_measurements(
    result: Path | None, trace: list[str], gpu: str | None, memory: str | None, command: Printing
) -> "tuple[Calibration, Gpu]":
    from tracekit import calibration

    if result is not None:
        return calibration.from_bench(result, gpu)
    from tracekit.capturing.recordings import load_recording
    from tracekit.cli.output import say
    from tracekit.run import prepare_run

    with command.show_progress() as stage:
        run = prepare_run(load_recording(trace, memory=memory, progress=stage), source_gpu=gpu, progress=stage)
    if run.provenance.source_doubt:
        say(str(run.provenance.source_doubt))
    return calibration.from_run(run)


def _store_calibration(measured: "Calibration", gpu: "Gpu", command: Printing) -> None:
    from predictors.calibrate import cross_validate_calibration
    from tracekit import calibration
    from tracekit.render import machines as render

    errors = cross_validate_calibration(measured.kernels, gpu)
    kept = calibration.select_helpful_families(measured, errors, gpu)
    path = calibration.save(kept)
    command.emit(
        render.render_new_calibration(kept, errors, path),
        lambda: render.serialize_new_calibration(kept, errors, path),
    )


Clear = Annotated[bool, typer.Option("--clear", help="Remove all of them.")]


def cache(clear: Clear = False, json: Json = False) -> None:
    """Decoded traces that are kept on this machine: where, how many, how large.

    Example: tracekit cache --clear
    """
    from dataclasses import asdict

    from tracekit.cli.output import print_line
    from tracekit.ingest import cache as entries
    from tracekit.render.json import dump_document

    found = entries.clear() if clear else entries.measure_usage()
    if json:
        typer.echo(dump_document(asdict(found) | {"directory": str(found.directory)}), nl=False)
        return
    what = f"{format_quantity(found.entries, 'decoded trace')}, {found.size_bytes / 1e6:,.1f} MB"
    print_line(f"{'removed' if clear else 'kept':<9}{what}")
    print_line(f"where    {found.directory}")


def config(json: Json = False) -> None:
    """Where defaults of options are read from, and what they are. The command line wins over them.

    A file tracekit.toml in the working directory goes before the user's; TRACEKIT_CONFIG names another in place of
    both. In such a file:

    gpu = ["h100-sxm", "l40s"] or cluster = "8xh100-sxm": targets where none is named

    price = { h100-sxm = 2.49 } or prices = "prices.toml": dollars for an hour of one GPU

    source_gpu = "a100-sxm-80gb": the GPU of traces that don't tell theirs

    host = "typical": the target's CPU

    Example: tracekit config
    """
    from tracekit.cli.config_file import list_config_files, read_config
    from tracekit.cli.output import print_line
    from tracekit.render.json import dump_document

    found = read_config()
    if json:
        files = [{"path": str(path.absolute()), "exists": path in found.files} for path in list_config_files()]
        origins = {key: str(path.absolute()) for key, path in found.origins.items()}
        typer.echo(dump_document({"files": files, "values": dict(found.values), "origins": origins}), nl=False)
        return
    for path in list_config_files():
        print_line(f"{path.absolute()}{'' if path in found.files else ' (there is none)'}")
    for key, value in found.values.items():
        shown = value if isinstance(value, str) else ", ".join(value)
        print_line(f"{key:<11}{shown}  (from {found.origins[key]})")


def gpus(
    name: Annotated[
        str | None, typer.Argument(help="One GPU, for all its figures and their sources.", autocompletion=complete_gpus)
    ] = None,
    json: Json = False,
) -> None:
    """The GPUs and CPUs that tracekit knows, or the figures of one with their sources.

    Example: tracekit gpus h100

    Example: tracekit gpus 'NVIDIA L40S' --json
    """
    from predictors import list_gpus, load_gpu, resolve_gpu
    from predictors.cpu_files import list_cpus
    from tracekit.cli.output import emit
    from tracekit.render import machines as render

    if name is None:
        known = [load_gpu(slug) for slug in (*list_gpus(), *list_cpus())]
        emit(render.render_gpu_table(known), lambda: render.serialize_gpus(known), json=json)
    else:
        found = resolve_gpu(name)
        emit(render.render_gpu_card(found), lambda: render.serialize_gpu(found), json=json)


def clusters(
    name: Annotated[
        str | None,
        typer.Argument(help="One cluster, for all its figures and their sources.", autocompletion=complete_clusters),
    ] = None,
    json: Json = False,
) -> None:
    """The clusters and cloud instances that tracekit knows, or one cluster's figures with their sources.

    Example: tracekit clusters 4x8xh100-sxm@ndr400
    """
    from tracekit.cli.output import emit
    from tracekit.comm import list_clusters, load_cluster
    from tracekit.render import machines as render

    if name is None:
        known = [load_cluster(slug) for slug in list_clusters()]
        emit(render.render_cluster_table(known), lambda: render.serialize_clusters(known), json=json)
    else:
        found = load_cluster(name)
        emit(render.render_cluster_card(found), lambda: render.serialize_cluster(found), json=json)


def hosts(json: Json = False) -> None:
    """The hosts that tracekit knows, by name for `--host`: how fast traces show them to be.

    Example: tracekit hosts
    """
    from tracekit.cli.output import emit
    from tracekit.hosts.usual import list_hosts
    from tracekit.render import machines as render

    emit(render.render_host_table(list_hosts()), lambda: render.serialize_hosts(list_hosts()), json=json)


Subject = Annotated[
    str | None,
    typer.Argument(
        metavar="CODE|PAGE",
        help="The code of an error, warning, note or finding, or a page's name; without it, lists the pages.",
        show_default=False,
        autocompletion=complete_subjects,
    ),
]


def explain(subject: Subject = None, json: Json = False) -> None:
    """What a message means, by the code at its end, or a page of the documentation.

    Example: tracekit explain price-missing

    Example: tracekit explain intervals
    """
    from tracekit.cli.output import emit
    from tracekit.packaged import explain_code, list_pages
    from tracekit.render import screens as render

    if subject is None:
        pages = list_pages()
        emit(render.render_pages(pages), lambda: render.serialize_pages(pages), json=json)
        return
    found = explain_code(subject.strip("[]"))
    emit(render.render_explanation(found), lambda: render.serialize_explanation(found), json=json)


DEMO_TARGETS = ("h100-sxm", "l40s", "mi300x")

DEFAULT_PAGE = Path("demo.html")

Page = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="The page to write; several may be given.",
        show_default=str(DEFAULT_PAGE),
    ),
]


def demo(context: typer.Context, output: Page = None, force: Force = False, quiet: Quiet = False) -> None:
    """Predict a sample trace that comes along on three GPUs, print it, and write it as a page.

    Example: tracekit demo --force
    """
    from tracekit.cli.output import say
    from tracekit.packaged import DEMO_SAMPLE, find_samples

    written = [word for path in output or [DEFAULT_PAGE] for word in ("-o", str(path))]
    targets = [argument for gpu in DEMO_TARGETS for argument in ("--gpu", gpu)]
    switches = [name for name, given in (("--force", force), ("--quiet", quiet)) if given]
    sample = find_samples()[DEMO_SAMPLE]
    if not quiet:
        say(f"tracekit predict {sample.name} {' '.join([*targets, *written])}")
    predict = context.parent.command.commands["predict"]  # type: ignore[union-attr]
    predict.main([str(sample), *targets, *written, *switches], standalone_mode=False)
