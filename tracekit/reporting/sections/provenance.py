"""Sources of the figures: version, command, files, weights, datasheets."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from predictors import Gpu
from predictors.weights_file import shipped_sha256
from tracekit.format import replace_undecodable
from tracekit.prediction import Prediction
from tracekit.run import MeasuredRun
from tracekit.secret_scan import HARMLESS_KEY_PATTERN
from tracekit.version import __version__


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Figures of a datasheet.

    Attributes:
        slug: Canonical name.
        name: Full name.
        facts: Name, value with unit, and source of each figure.
    """

    slug: str
    name: str
    facts: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Sources of the figures.

    Attributes:
        version: Version of tracekit.
        command: The command line; ``None`` if called from Python.
        trace: The trace that was read.
        sha256: Hash of the trace file; ``None`` if it isn't a file on this machine.
        weights_sha256: Hash of the fitted weights.
        recorded: Metadata of the recording, without hosts, users and other values that may be private.
        gpus: The datasheets.
    """

    version: str
    command: str | None
    trace: str
    sha256: str | None
    weights_sha256: str
    recorded: tuple[tuple[str, str], ...]
    gpus: tuple[GpuFacts, ...]


def build_provenance(run: MeasuredRun, targets: Sequence[Prediction], command: str | None) -> Provenance:
    """Build the sources of the figures.

    Args:
        run: The measured run.
        targets: Its predictions.
        command: The command line that requested the report.
    """
    path = Path(run.trace.source)
    gpus = {gpu.slug: gpu for gpu in (run.gpu, *(target.target.gpu.gpu for target in targets)) if gpu is not None}
    told = ((key, value) for key, value in run.trace.metadata.items() if re.fullmatch(HARMLESS_KEY_PATTERN, key))
    return Provenance(
        version=__version__,
        command=replace_undecodable(command) if command else None,
        trace=replace_undecodable(run.trace.source),
        sha256=_hash_file(path) if path.is_file() else None,
        weights_sha256=shipped_sha256(),
        recorded=tuple((key, str(value)) for key, value in told),
        gpus=tuple(_list_gpu_facts(gpu) for gpu in gpus.values()),
    )


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _list_gpu_facts(gpu: Gpu) -> GpuFacts:
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
