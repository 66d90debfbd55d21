"""Measure this machine's GPU without attention: ``make on-gpu``, or ``python -m tests.validation.on_gpu OUT.tar.gz``.

Needs PyTorch with a GPU, and nvidia-ml-py for clocks and power; nothing is downloaded, no setting of the GPU is changed
unless ``--power-cap`` asks for it. Leave the machine otherwise idle. OUT.tar.gz holds no host name and no path:

    machine.json   GPU, host, software; when each stage ran, what failed, what was left out
    clocks.csv     clocks, power, energy and temperature, 20 times a second
    samples/       traces of whole steps (sample_traces/workloads), and of public traces' jobs; slow/: with half a core
    samples/bench.json   160 kernels on the cold GPU, by events and by the profiler; what `tracekit calibrate` takes
    steps.json     the same whole steps, held for some seconds without the profiler
    heat.json      a large GEMM, held for a minute
    kernels.json   the kernels of the bench, each held for half a second on the hot GPU
    lookups.json   embedding look-ups by the distribution of their indices
    power_caps.json   a GEMM and a training step under each `--power-cap`
"""

import argparse
import sys
import tarfile
import tempfile
from pathlib import Path

import torch

from tests.validation.on_gpu.session import Session
from tests.validation.on_gpu.stages import ON_CPU, STAGES


def main(arguments: list[str] | None = None) -> int:
    """Run the stages that were asked for, and write the archive after each."""
    options = parse(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("on_gpu: PyTorch finds no GPU on this machine; --device cpu tries the script out", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder), options.device, options.minutes, options.shorten, tuple(options.power_cap))
        with session.log_clocks():
            for name in options.stage or (STAGES if options.device == "cuda" else ON_CPU):
                session.run_stage(name, STAGES[name])
                write_archive(Path(folder), options.output)
        write_archive(Path(folder), options.output)
    print(f"{options.output}: {options.output.stat().st_size / 1e6:.1f} MB", file=sys.stderr)
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.validation.on_gpu", description="Measure a GPU.")
    parser.add_argument("output", type=Path, metavar="OUT.tar.gz")
    parser.add_argument("--minutes", type=float, default=20, help="what doesn't begin in this time is left out (20)")
    parser.add_argument("--stage", action="append", choices=list(STAGES), help="only this one; may be repeated")
    parser.add_argument("--shorten", type=float, default=1, help="divide the time that things are held by this (1)")
    parser.add_argument(
        "--power-cap", action="append", type=float, default=[], metavar="WATTS", help="set and restored"
    )
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: two stages, small models, to try it out"
    )
    return parser.parse_args(arguments)


def write_archive(folder: Path, path: Path) -> None:
    """Write all files of the folder, under names that begin with the GPU's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}")
    with tarfile.open(partial, "w:gz") as archive:
        archive.add(folder, arcname=path.name.removesuffix(".tar.gz"), filter=forget_owner)
    partial.replace(path)


def forget_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the member without the user's name."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    sys.exit(main())
