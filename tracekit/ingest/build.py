"""Decoded events to the tables of a trace."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.errors import NoGpuActivityError
from tracekit.ingest.kineto import Args, Document, Event, Scalar, Vector
from tracekit.trace import Device, RankTrace

NO_ARGS = Args()
STEP_PREFIX = "ProfilerStep#"

# The year 2116 (2^62 ns), and seven days: times beyond are counters that overflowed.
LATEST_US = 2**62 / 1e3
LONGEST_US = 7 * 86400e6

TABLE_OF_CATEGORY = {
    "cpu_op": "ops",
    "operator": "ops",
    "user_annotation": "annotations",
    "runtime": "calls",
    "cuda_runtime": "calls",
    "cuda_driver": "calls",
    "xpu_runtime": "calls",
    "xpu_driver": "calls",
    "mtia_runtime": "calls",
    "privateuse1_runtime": "calls",
    "privateuse1_driver": "calls",
    "kernel": "kernel",
    "memcpy": "memcpy",
    "gpu_memcpy": "memcpy",
    "memset": "memset",
    "gpu_memset": "memset",
    "cuda_sync": "syncs",
}
ACTIVITY_KINDS = ("kernel", "memcpy", "memset")

# HIP reports this call's grid in work-items, every other one's in work-groups.
GRID_IN_WORK_ITEMS = "hipExtModuleLaunchKernel"

Events = Sequence[Event[Any]]


def build(document: Document[Any], source: str) -> RankTrace:
    """The tables of a decoded trace, each ordered by start.

    Raises:
        NoGpuActivityError: Nothing in it ran on a GPU.
    """
    buckets, lost = _sort_into_tables(document.trace_events)
    base_ns = document.base_time_nanoseconds
    activities = _activities(buckets, base_ns)
    ops = _ops(buckets["ops"], base_ns)
    if activities.is_empty():
        raise _nothing_on_gpu(source, ops)
    device = _device(document, activities)
    rank, world_size = _place(document.distributed_info)
    return RankTrace(
        source=source,
        ops=ops,
        annotations=_annotations(buckets["annotations"], base_ns),
        calls=_calls(buckets["calls"], base_ns),
        activities=activities,
        syncs=_syncs(buckets["syncs"], base_ns),
        device=device,
        rank=rank,
        world_size=world_size,
        metadata={},
        warnings=tuple(_warnings(ops, device, lost)),
    )


def _nothing_on_gpu(source: str, ops: pl.DataFrame) -> NoGpuActivityError:
    if ops.is_empty():
        return NoGpuActivityError(f"{source} holds no GPU activity and no CPU ops.", "Is it a trace of torch.profiler?")
    return NoGpuActivityError(
        f"{source} holds {ops.height:,} CPU ops but no GPU activity.",
        "Record it with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
    )


def _sort_into_tables(events: Events) -> tuple[dict[str, list[Event[Any]]], int]:
    """Complete events by the table they belong to, and how many lack a usable time."""
    buckets: dict[str, list[Event[Any]]] = defaultdict(list)
    lost = 0
    for event in events:
        if event.ph != "X" or event.cat is None:
            continue
        table = TABLE_OF_CATEGORY.get(event.cat.lower())
        if table is None:
            continue
        if not _has_time(event):
            lost += 1
            continue
        if table == "ops" and str(event.name).startswith(STEP_PREFIX):
            table = "annotations"
        buckets[table].append(event)
    return buckets, lost


def _has_time(event: Event[Any]) -> bool:
    """Whether an event says when it ran. CUPTI writes 0, 0 where it doesn't know, and durations that overflowed."""
    if event.ts is None or event.dur is None or (event.ts == 0 and event.dur == 0):
        return False
    return bool(abs(event.ts) < LATEST_US and event.dur < LONGEST_US)


def _ops(events: Events, base_ns: int) -> pl.DataFrame:
    args = [event.args or NO_ARGS for event in events]
    columns = {
        **_span(events, base_ns),
        **_thread(events),
        "external_id": _ints(a.external_id for a in args),
        "record_function_id": _ints(a.record_function_id for a in args),
        "sequence": _ints(a.sequence for a in args),
        "input_dims": _texts(a.dims or a.dims_2020 for a in args),
        "input_types": _texts(a.types for a in args),
        "input_strides": _texts(a.strides for a in args),
        "concrete_inputs": _texts(a.concrete for a in args),
        **_collective(args),
    }
    return _ordered(schema.OPS.frame(columns))


def _annotations(events: Events, base_ns: int) -> pl.DataFrame:
    return _ordered(schema.ANNOTATIONS.frame({**_span(events, base_ns), **_thread(events)}))


def _calls(events: Events, base_ns: int) -> pl.DataFrame:
    correlation = _ints((event.args or NO_ARGS).correlation for event in events)
    columns = {**_span(events, base_ns), **_thread(events), "correlation": correlation}
    return _ordered(schema.CALLS.frame(columns))


def _syncs(events: Events, base_ns: int) -> pl.DataFrame:
    args = [event.args or NO_ARGS for event in events]
    columns = {
        **_span(events, base_ns),
        "stream": _ints(a.stream for a in args),
        "correlation": _ints(a.correlation for a in args),
        "wait_on_stream": _ints(a.wait_on_stream for a in args),
        "wait_on_record": _ints(a.wait_on_record for a in args),
    }
    return _ordered(schema.SYNCS.frame(columns))


def _activities(buckets: dict[str, list[Event[Any]]], base_ns: int) -> pl.DataFrame:
    events = [event for kind in ACTIVITY_KINDS for event in buckets[kind]]
    args = [event.args or NO_ARGS for event in events]
    geometry = _launch_geometry(buckets["calls"])
    shapes = [
        (_product(a.grid), _product(a.block)) if a.grid is not None else geometry.get(a.correlation, (None, None))
        for a in args
    ]
    columns = {
        **_span(events, base_ns),
        "kind": [kind for kind in ACTIVITY_KINDS for _ in buckets[kind]],
        "device": _ints(event.pid if a.device is None else a.device for event, a in zip(events, args, strict=True)),
        "stream": _ints(event.tid if a.stream is None else a.stream for event, a in zip(events, args, strict=True)),
        "correlation": _ints(a.correlation for a in args),
        "bytes": _ints(a.bytes for a in args),
        "blocks": [blocks for blocks, _ in shapes],
        "threads_per_block": [threads for _, threads in shapes],
        "registers_per_thread": _ints(a.registers for a in args),
        "shared_memory_bytes": _ints(a.shared_memory for a in args),
        "graph_node_id": _ints(a.graph_node_id for a in args),
        **_collective(args),
    }
    return _ordered(schema.ACTIVITIES.frame(columns))


def _launch_geometry(calls: Events) -> dict[Scalar, tuple[int | None, int | None]]:
    """Correlation to blocks and threads per block, for dialects (ROCm) that note them on the call."""
    geometry = {}
    for call in calls:
        if call.args is None or call.args.grid is None:
            continue
        blocks, threads = _product(call.args.grid), _product(call.args.block)
        if call.name == GRID_IN_WORK_ITEMS and blocks and threads:
            blocks = math.ceil(blocks / threads)
        geometry[call.args.correlation] = blocks, threads
    return geometry


def _span(events: Events, base_ns: int) -> dict[str, Any]:
    return {
        "ts_ns": _ns([event.ts for event in events]) + base_ns,
        "dur_ns": np.maximum(_ns([event.dur for event in events]), 0),
        "name": [str(event.name) for event in events],
    }


def _thread(events: Events) -> dict[str, Any]:
    return {"pid": _ints(event.pid for event in events), "tid": _ints(event.tid for event in events)}


def _collective(args: Sequence[Args]) -> dict[str, Any]:
    return {
        "collective": [_optional_text(a.collective) for a in args],
        "collective_dtype": [_optional_text(a.collective_dtype) for a in args],
        "in_nelems": _ints(a.in_nelems for a in args),
        "out_nelems": _ints(a.out_nelems for a in args),
        "group_size": _ints(a.group_size for a in args),
        "process_group": [_optional_text(a.process_group) for a in args],
        "group_ranks": _texts(a.group_ranks for a in args),
    }


def _ordered(frame: pl.DataFrame) -> pl.DataFrame:
    """By start, enclosing events first; every other column breaks ties, so that file order doesn't matter."""
    rest = [name for name in frame.columns if name not in ("ts_ns", "dur_ns")]
    descending = [False, True, *(False for _ in rest)]
    return frame.sort("ts_ns", "dur_ns", *rest, descending=descending, nulls_last=True)


def _ns(microseconds: list[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Microseconds to whole nanoseconds; exact for Decimal, and for doubles below 2**53 / 1000."""
    if microseconds and isinstance(microseconds[0], Decimal):
        return np.array([round(value * 1000) for value in microseconds], dtype=np.int64)
    return np.rint(np.array(microseconds, dtype=np.float64) * 1000).astype(np.int64)


def _ints(values: Iterable[Scalar]) -> pl.Series:
    values = list(values)
    try:
        return pl.Series(values, dtype=pl.Int64)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series([_int(value) for value in values], dtype=pl.Int64)


def _int(value: Scalar) -> int | None:
    """An id or count in any of its spellings: 7, 7.0, "7", "stream 7"."""
    if isinstance(value, str):
        digits = re.search(r"-?\d+$", value)
        value = int(digits.group()) if digits else None
    if value is None or not math.isfinite(value) or not -(2**63) <= value < 2**63:
        return None
    return int(value)


def _texts(values: Iterable[Any]) -> pl.Series:
    """Raw JSON to compact text; null where the argument is missing or an empty list."""
    texts = [bytes(value).decode() if value else None for value in values]
    compact = pl.Series(texts, dtype=pl.String).str.replace_all(r"\s+", "")
    return compact.set(compact.is_in(["[]", "null"]), None)


def _optional_text(value: Scalar) -> str | None:
    return None if value is None else str(value)


def _product(vector: Vector) -> int | None:
    if isinstance(vector, str):
        vector = _json_list(vector)
    if not vector:
        return None
    return math.prod(_int(value) or 1 for value in vector)


def _json_list(text: str) -> list[Scalar] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, list) else None


def _device(document: Document[Any], activities: pl.DataFrame) -> Device | None:
    """The device that most activities ran on, as deviceProperties describes it.

    Where ordinals are remapped (containers), the activities' one may be missing from the list; any entry will do if
    all are of one kind.
    """
    devices = document.device_properties or []
    used = Counter(activities["device"].to_list()).most_common(1)[0][0]
    found = next((device for device in devices if device.id == used), None)
    if found is None and len({(device.name, device.num_sms) for device in devices}) == 1:
        found = devices[0]
    if found is None:
        return None
    major, minor = found.compute_major, found.compute_minor
    return Device(
        name=found.name,
        sms=found.num_sms,
        memory_bytes=found.total_global_mem,
        compute_capability=None if major is None or minor is None else f"{major}.{minor}",
    )


def _place(info: Any) -> tuple[int | None, int]:
    """Rank and world size from distributedInfo."""
    if not isinstance(info, dict):
        return None, 1
    rank, world_size = info.get("rank"), info.get("world_size")
    return (rank if isinstance(rank, int) else None), (world_size if isinstance(world_size, int) else 1)


def _warnings(ops: pl.DataFrame, device: Device | None, lost: int) -> Iterable[str]:
    if lost:
        yield f"{lost:,} events without a time were left out"
    if device is None:
        yield "the trace doesn't describe its GPU (no deviceProperties): name it with --source-gpu"
    if ops.is_empty():
        yield "no CPU ops were recorded: kernels can't be told apart by op or shape (add ProfilerActivity.CPU)"
    elif ops["input_dims"].count() == 0:
        yield "shapes were not recorded: kernels are scaled by class, not modelled (record_shapes=True)"
