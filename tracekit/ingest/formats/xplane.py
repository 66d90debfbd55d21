"""Read XPlane, the profiles of JAX, XLA and TensorFlow: kernels by stream, runtime calls, and HLO ops as ops.

A plane is a GPU or the host, a line of it a stream or a thread. Lines that are derived from others, such as XLA Ops,
are left out. Details of kernels and copies are texts: ``regs:32 static_shared:0 dynamic_shared:0 grid:2,1,1
block:64,1,1`` on NVIDIA, and since 2025 ``grid:2,1,1 block:64,1,1 private_mem:0 group_mem:2112`` on AMD.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import polars as pl

from tracekit.errors import NoGpuActivityError
from tracekit.ingest.formats.protobufs import build_messages, parse_message
from tracekit.ingest.formats.tables import ForeignFile, ForeignTrace, build_texts
from tracekit.messages.traces import XPLANE_WITHOUT_KERNELS

_SCHEMA = {
    "XSpace": ("repeated XPlane planes = 1",),
    "XPlane": (
        "int64 id = 1", "string name = 2", "repeated XLine lines = 3", "repeated EventNameEntry event_metadata = 4",
        "repeated StatNameEntry stat_metadata = 5", "repeated XStat stats = 6",
    ),
    "EventNameEntry": ("int64 key = 1", "XEventMetadata value = 2"),
    "StatNameEntry": ("int64 key = 1", "XStatMetadata value = 2"),
    "XLine": ("int64 id = 1", "string name = 2", "int64 timestamp_ns = 3", "repeated XEvent events = 4"),
    "XEvent": (
        "int64 metadata_id = 1", "int64 offset_ps = 2", "int64 duration_ps = 3", "repeated XStat stats = 4",
    ),
    "XStat": (
        "int64 metadata_id = 1", "double double_value = 2", "uint64 uint64_value = 3", "int64 int64_value = 4",
        "string str_value = 5", "uint64 ref_value = 7",
    ),
    "XEventMetadata": ("int64 id = 1", "string name = 2", "string display_name = 4"),
    "XStatMetadata": ("int64 id = 1", "string name = 2"),
}  # fmt: skip


@cache
def load_messages() -> dict[str, Any]:
    """Return the message classes.

    Raises:
        ImportError: The package ``protobuf`` isn't installed.
    """
    return build_messages("tracekit.xplane", _SCHEMA)


FORM = "XPlane"
_GPU_PLANE = re.compile(r"^/device:GPU:(\d{1,9})$")
_HOST_PLANE = re.compile(r"^/host:(?:CPU|CUPTI|ROCTRACER|RoctracerApi)")
_STREAM_LINE = re.compile(r"^Stream #(\d{1,9})")
_CALL = r"^(?:cu|cuda|hip)[A-Z]\w+$"
_COPY, _SET = r"(?i)^(?:memcpy|Copy(?:Host|Device)To)", r"(?i)^memset"
_DIRECTIONS = r"(?i)^memcpy([HDP])2([HDP])$", r"^Copy([HD])\w+To([HD])\w+$"
_PYTHON_MARK = "$"
"""Begins the name of a call of a Python function."""
_MAX_REGISTERS = 1 << 10
"""More than any GPU gives a thread; XLA wrote addresses there on AMD."""
_SHARED_MEMORY = ("static_shared", "dynamic_shared", "group_mem")
_STEP = "step_num"
_PS_PER_NS = 1_000
_MAX_NS = 2**62
"""Later times are taken for this one, so that sums of times fit into 64 bits."""
_READ_STATS = {"correlation_id", "kernel_details", "memcpy_details", "hlo_op", _STEP}

_PROPERTIES = {
    "numSms": "core_count", "totalGlobalMem": "memory_size", "computeMajor": "compute_cap_major",
    "computeMinor": "compute_cap_minor",
}  # fmt: skip
_ROW = {
    "ts_ns": pl.Int64, "dur_ns": pl.Int64, "name": pl.String, "device": pl.Int64, "lane": pl.Int64,
    "correlation_id": pl.Int64, "kernel_details": pl.String, "memcpy_details": pl.String, "hlo_op": pl.String,
    _STEP: pl.Int64,
}  # fmt: skip


def read(file: ForeignFile) -> ForeignTrace:
    """Read a file.

    Raises:
        TraceError: It is no XPlane, too large, holds no GPU's kernels, or the package ``protobuf`` isn't installed.
    """
    space = parse_message(file, FORM, load_messages, "XSpace")
    columns = zip(*_list_rows(space), strict=True)
    rows = pl.DataFrame(
        [
            build_texts(values).alias(name) if _ROW[name] == pl.String else pl.Series(name, values, dtype=_ROW[name])
            for name, values in zip(_ROW, columns, strict=False)
        ],
        schema=_ROW,
    )
    file.check_texts([rows])
    on_gpu, host = rows.drop_nulls("device"), rows.filter(pl.col("device").is_null())
    is_python = host["name"].str.starts_with(_PYTHON_MARK)
    host = host.filter(~is_python)
    if on_gpu.is_empty():
        raise NoGpuActivityError(XPLANE_WITHOUT_KERNELS(path=file.name))
    activities = _build_activities(on_gpu)
    is_copy, is_set = pl.col("name").str.contains(_COPY), pl.col("name").str.contains(_SET)
    host = host.with_columns(pid=pl.lit(1), tid="lane", correlation="correlation_id")
    is_call = pl.col("name").str.contains(_CALL)
    calls = host.filter(is_call)
    annotations = host.filter(~is_call).with_columns(name=pl.coalesce(pl.format("ProfilerStep#{}", _STEP), "name"))
    tables = {
        "ops": _build_ops(calls, on_gpu),
        "annotations": annotations,
        "calls": calls,
        "kernel": activities.filter(~is_copy & ~is_set),
        "memcpy": activities.filter(is_copy),
        "memset": activities.filter(is_set & ~is_copy),
    }
    unread = {"python_function": int(is_python.sum())} if is_python.any() else {}
    return ForeignTrace(tables, _describe_gpus(space), unread=unread)


def _describe_gpus(space: Any) -> dict[str, object]:
    """Return the figures of each GPU, which XPlane doesn't name."""
    found = []
    for plane in space.planes:
        gpu = _GPU_PLANE.match(plane.name)
        names = {entry.key: entry.value.name for entry in plane.stat_metadata}
        stats = {names.get(stat.metadata_id): stat.int64_value or stat.uint64_value for stat in plane.stats}
        if gpu and stats.get("core_count"):
            properties = {key: stats[name] for key, name in _PROPERTIES.items() if name in stats}
            found.append({"id": int(gpu[1]), "name": "", **properties})
    return {"deviceProperties": found} if found else {}


def _list_rows(space: Any) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each event of GPUs' streams and of the host's threads."""
    for plane in space.planes:
        gpu = _GPU_PLANE.match(plane.name)
        if not gpu and not _HOST_PLANE.match(plane.name):
            continue
        stat_names = {entry.key: entry.value.name for entry in plane.stat_metadata}
        read_stats = {key: name for key, name in stat_names.items() if name in _READ_STATS}
        names = {entry.key: entry.value.display_name or entry.value.name for entry in plane.event_metadata}
        for line in plane.lines:
            stream = _STREAM_LINE.match(line.name)
            if gpu and not stream:
                continue
            lane = int(stream[1]) if gpu and stream else line.id
            for event in line.events:
                yield (
                    max(-_MAX_NS, min(line.timestamp_ns + event.offset_ps // _PS_PER_NS, _MAX_NS)),
                    event.duration_ps // _PS_PER_NS,
                    names.get(event.metadata_id, "unknown"),
                    int(gpu[1]) if gpu else None,
                    lane,
                    *_read_stats(event, read_stats, stat_names),
                )


def _read_stats(event: Any, read_stats: dict[int, str], stat_names: dict[int, str]) -> Iterator[Any]:
    """Yield the values of the statistics that are read."""
    found: dict[str, Any] = {}
    for stat in event.stats:
        name = read_stats.get(stat.metadata_id)
        if name is None:
            continue
        if stat.HasField("str_value"):
            found[name] = stat.str_value
        elif stat.HasField("ref_value"):
            found[name] = stat_names.get(stat.ref_value)
        else:
            found[name] = stat.int64_value if stat.HasField("int64_value") else stat.uint64_value
    for name, dtype in list(_ROW.items())[5:]:
        value = found.get(name)
        is_right = isinstance(value, str) if dtype == pl.String else isinstance(value, int) and value < 2**63
        yield value if is_right else None


def _build_activities(rows: pl.DataFrame) -> pl.DataFrame:
    """Parse the details."""
    details = pl.col("kernel_details").str
    shared = (details.extract(rf"{part}:(\d{{1,12}})").cast(pl.Int64) for part in _SHARED_MEMORY)
    registers = details.extract(r"regs:(\d{1,12})").cast(pl.Int64)
    name = pl.col("name").str.replace(r"\.kd$", "")
    for pattern in _DIRECTIONS:
        name = name.str.replace(pattern, "Memcpy ${1}to${2}")
    return rows.with_columns(
        name=name,
        stream="lane",
        correlation="correlation_id",
        grid=pl.format("[{}]", details.extract(r"grid:([\d,]{1,60})")),
        block=pl.format("[{}]", details.extract(r"block:([\d,]{1,60})")),
        registers_per_thread=pl.when(registers <= _MAX_REGISTERS).then(registers),
        shared_memory_bytes=pl.when(pl.col("kernel_details").is_not_null()).then(pl.sum_horizontal(shared)),
        bytes=pl.col("memcpy_details").str.extract(r"size:(\d{1,18})").cast(pl.Int64),
    )


def _build_ops(calls: pl.DataFrame, on_gpu: pl.DataFrame) -> pl.DataFrame:
    """Make an op of each call that launches a kernel of an HLO op."""
    launched = on_gpu.drop_nulls(["hlo_op", "correlation_id"]).unique("correlation_id", keep="first")
    found = calls.drop("hlo_op").join(launched.select("correlation_id", "hlo_op"), on="correlation_id")
    return found.with_columns(name="hlo_op")
