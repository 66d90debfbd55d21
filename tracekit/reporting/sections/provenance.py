"""Where the figures come from: version, command, files, weights, datasheets."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from predictors import Gpu
from predictors.fitted import shipped_sha256
from tracekit.prediction import Prediction
from tracekit.replay.run import Run
from tracekit.secrets import HARMLESS
from tracekit.units import printable


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What a datasheet says.

    Attributes:
        slug: Canonical name.
        name: Its full name.
        facts: What, value with unit, and where it stands.
    """

    slug: str
    name: str
    facts: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the figures come from.

    Attributes:
        version: tracekit's.
        command: The command line; ``None`` if it was called from Python.
        trace: What was read.
        sha256: Of the trace file; ``None`` if it isn't a file on this machine.
        weights_sha256: Of the fitted numbers.
        recorded: What the trace says of its recording, without hosts, users and what else may be private.
        gpus: The datasheets.
    """

    version: str
    command: str | None
    trace: str
    sha256: str | None
    weights_sha256: str
    recorded: tuple[tuple[str, str], ...]
    gpus: tuple[GpuFacts, ...]


def build(run: Run, targets: Sequence[Prediction], command: str | None) -> Provenance:
    """Where the figures come from.

    Args:
        run: The measured run.
        targets: Its predictions.
        command: The command line that asked for the report.
    """
    path = Path(run.trace.source)
    gpus = {gpu.slug: gpu for gpu in (run.gpu, *(target.target.gpu for target in targets)) if gpu is not None}
    told = ((key, value) for key, value in run.trace.metadata.items() if re.fullmatch(HARMLESS, key))
    return Provenance(
        version=version("tracekit"),
        command=printable(command) if command else None,
        trace=printable(run.trace.source),
        sha256=_sha256(path) if path.is_file() else None,
        weights_sha256=shipped_sha256(),
        recorded=tuple((key, str(value)) for key, value in told),
        gpus=tuple(_facts(gpu) for gpu in gpus.values()),
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _facts(gpu: Gpu) -> GpuFacts:
    link = f"{gpu.link_gbps:g} GB/s, {gpu.link}" if gpu.link_gbps else "none"
    rows = (
        ("SMs or compute units", f"{gpu.sms}", "compute.sms"),
        ("boost clock", f"{gpu.boost_clock_mhz:g} MHz", "compute.boost_clock_mhz"),
        ("board power", f"{gpu.tdp_w:g} W", "compute.tdp_w"),
        ("memory", f"{gpu.memory_bytes / 2**30:g} GB {gpu.memory_kind}", "memory.size_gb"),
        ("memory bandwidth", f"{gpu.bandwidth_gbps:g} GB/s", "memory.bandwidth_gbps"),
        ("L2 cache", f"{gpu.l2_bytes / 2**20:g} MiB", "memory.l2_mib"),
        *(
            (f"{dtype} {units}", f"{peak:g} TFLOP/s", f"{units}_tflops.{dtype}")
            for units, peaks in (("vector", gpu.vector_tflops), ("tensor", gpu.tensor_tflops))
            for dtype, peak in peaks.items()
        ),
        ("links, one direction", link, "interconnect.link_gbps"),
    )
    return GpuFacts(gpu.slug, gpu.name, tuple((what, value, gpu.sources.get(key, "")) for what, value, key in rows))
