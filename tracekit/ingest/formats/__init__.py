"""Traces of other tools than PyTorch's profiler, read into the same tables.

To add a format: a module with a function ``read`` of a :class:`~tracekit.ingest.formats.tables.ForeignFile`, and a row
in ``FORMATS``.
"""

import re
import tempfile
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from tracekit.ingest.build import build_rank_traces
from tracekit.ingest.foreign import JSON_START
from tracekit.ingest.formats import chakra
from tracekit.ingest.formats.tables import ForeignFile, ForeignTrace, to_decoded_file
from tracekit.ingest.window import FillableStream
from tracekit.messages import Message
from tracekit.messages.traces import (
    FORMAT_LACKS,
    FORMAT_WITHOUT_OPS,
    FORMAT_WITHOUT_SHAPES,
    OPS_NOT_RECORDED,
    SHAPES_NOT_RECORDED,
)
from tracekit.trace import RankTrace

BLOCK_BYTES = 1 << 20
WAITS = "waits for events"
OPS = "ops and shapes but those of emit_nvtx(record_shapes=True)"


@dataclass(frozen=True, slots=True)
class Format:
    """A format of traces.

    Attributes:
        tool: What writes it.
        module: The module that reads it.
        mark: Pattern that the head of such a file matches; ``None`` where only the name tells.
        name: Pattern that its name matches, without the ending of a compression; where there are both, both match.
        lacks: What PyTorch's profiler records and this format doesn't have.
        advice: How to record ops and shapes with this tool; ``None`` where PyTorch's own advice is right.
    """

    tool: str
    module: str
    mark: bytes | None
    name: str | None
    lacks: tuple[str, ...]
    advice: str | None = ""


NSIGHT = Format(
    tool="Nsight Systems",
    module="nsight",
    mark=rb"\ASQLite format 3\0",
    name=None,
    lacks=("sizes of collectives", f"{WAITS} without --cuda-event-trace=true", OPS),
    advice="Record with `nsys profile --trace=cuda,nvtx`, under torch.autograd.profiler.emit_nvtx(record_shapes=True).",
)
ROCPROF = Format(
    tool="rocprofv3",
    module="rocprofv3",
    mark=rb'\A\s*\{\s*"rocprofiler-sdk-tool"\s*:',
    name=None,
    lacks=("sizes of collectives", WAITS, OPS),
    advice="Record with `rocprofv3 --runtime-trace`, under torch.autograd.profiler.emit_nvtx(record_shapes=True).",
)
ROCPD = replace(ROCPROF, module="rocpd", mark=rb"\ASQLite format 3\0(?s:.*?)rocpd_kernel_dispatch")
XPLANE = Format(
    tool="JAX or XLA",
    module="xplane",
    mark=None,
    name=r"\.xplane\.pb$",
    lacks=("shapes", "sizes of collectives", WAITS),
)
CHAKRA = Format(
    tool="Chakra",
    module="chakra",
    mark=None,
    name=r"\.et$",
    lacks=("GPU's name", "grids of kernels", "strides", "steps", "times below a microsecond"),
)
CHAKRA_JSON = replace(CHAKRA, mark=chakra.MARK, name=None)
PERFETTO = Format(
    tool="rocprofv3",
    module="perfetto",
    mark=None,
    name=r"\.(?:pftrace|perfetto-trace)$",
    lacks=("GPU's name", *ROCPROF.lacks),
    advice=ROCPROF.advice,
)
TORCH_PERFETTO = Format(
    tool="PyTorch's Perfetto export",
    module="perfetto_torch",
    mark=rb"cpu_op|cuda_runtime|cuda_driver|registers_per_thread|External id|cuda_sync_kind",
    name=PERFETTO.name,
    lacks=("GPU's name", "ranks", "directions of copies", "Python stacks"),
    advice=None,
)
_TRANSLATED = {OPS_NOT_RECORDED.code: FORMAT_WITHOUT_OPS, SHAPES_NOT_RECORDED.code: FORMAT_WITHOUT_SHAPES}
NO_DATABASE = replace(NSIGHT, mark=None, name=r"\.(?:sqlite|db)$")
"""Named as a database, which its reader will say it isn't."""
FORMATS = (ROCPD, NSIGHT, ROCPROF, XPLANE, CHAKRA, CHAKRA_JSON, TORCH_PERFETTO, PERFETTO, NO_DATABASE)


def identify_format(head: bytes, source: str) -> Format | None:
    """Return the format of a file; ``None`` for PyTorch's own and for unknown ones."""
    name = re.sub(r"\.(?:gz|gzip|zst)$", "", source.lower())
    return next((form for form in FORMATS if _matches(form, head, name)), None)


def _matches(form: Format, head: bytes, name: str) -> bool:
    if form.name and (not re.search(form.name, name) or JSON_START.match(head)):
        return False
    return not form.mark or re.search(form.mark, head) is not None


def read_stream(
    form: Format, stream: FillableStream, source: str, memory_bytes: int, *, needs_gpu: bool
) -> list[RankTrace]:
    """Read a file of another format.

    Args:
        form: Its format.
        stream: Its content, uncompressed.
        source: Its name in messages.
        memory_bytes: Memory limit of its tables.
        needs_gpu: Whether to refuse a trace without GPU activity.

    Raises:
        TraceError: It is damaged, too large, holds no GPU activity, or another package is needed to read it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        file, buffer = ForeignFile(path, source, memory_bytes), memoryview(bytearray(BLOCK_BYTES))
        with path.open("wb") as copy:
            while got := stream.readinto(buffer):
                copy.write(buffer[:got])
                file.check_size(copy.tell())  # a device or a compressed file may have no end
        return read_path(form, file, needs_gpu=needs_gpu)


def read_path(form: Format, file: ForeignFile, *, needs_gpu: bool) -> list[RankTrace]:
    """Read a file, or a folder, of another format; arguments as for :func:`read_stream`."""
    found = import_module(f"{__name__}.{form.module}").read(file)
    file.check_texts(found.tables.values())
    ranks = build_rank_traces(to_decoded_file(found), file.name, needs_gpu=needs_gpu)
    lacks = FORMAT_LACKS(
        tool=form.tool, lacks=[what for what in form.lacks if not (what.startswith(WAITS) and _has_waits(found))]
    )
    return [
        replace(rank, warnings=(lacks, *(_translate_warning(one, form.advice) for one in rank.warnings)))
        for rank in ranks
    ]


def _translate_warning(warning: Message, advice: str | None) -> Message:
    """Return the warning with what to do about it in this tool."""
    template = _TRANSLATED.get(warning.code)
    return warning if template is None or advice is None else template(advice=advice)


def _has_waits(trace: ForeignTrace) -> bool:
    syncs = trace.tables.get("syncs")
    return syncs is not None and "wait_on_record" in syncs.columns and syncs["wait_on_record"].count() > 0
