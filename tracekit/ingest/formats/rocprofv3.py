"""Read the JSON that ``rocprofv3 --output-format json`` writes (``rocprofv3-schema.json`` of rocprofiler-sdk)."""

from collections.abc import Sequence

import msgspec
import polars as pl
from msgspec import Struct, field

from tracekit.errors import DamagedTraceError, NoGpuActivityError
from tracekit.ingest.event_decoder import JSON_ERRORS
from tracekit.ingest.formats.tables import ForeignFile, ForeignTrace, format_vector, name_copies, split_ranges
from tracekit.messages.traces import FORMAT_DAMAGED, ROCPROF_WITHOUT_KERNELS

GPU_AGENT = 2
"""Type of an agent that is a GPU (``ROCPROFILER_AGENT_TYPE_GPU``)."""


class Handle(Struct, gc=False):
    """A handle."""

    handle: int = 0


class Sizes(Struct, gc=False):
    """A size in three dimensions."""

    x: int = 1
    y: int = 1
    z: int = 1


class Correlation(Struct, gc=False):
    """What joins a call to what it launches."""

    internal: int = 0


class Dispatch(Struct, gc=False):
    """How a kernel was launched; the grid is counted in work-items."""

    agent_id: Handle = field(default_factory=Handle)
    queue_id: Handle = field(default_factory=Handle)
    kernel_id: int = 0
    group_segment_size: int = 0
    workgroup_size: Sizes = field(default_factory=Sizes)
    grid_size: Sizes = field(default_factory=Sizes)


class Record(Struct, gc=False):
    """A call, a range, a kernel or a copy."""

    start_timestamp: int
    end_timestamp: int
    kind: int = 0
    operation: int = 0
    thread_id: int = 0
    correlation_id: Correlation = field(default_factory=Correlation)
    stream_id: Handle | None = None
    dispatch_info: Dispatch | None = None
    dst_agent_id: Handle | None = None
    src_agent_id: Handle | None = None
    bytes: int | None = None


class Records(Struct):
    """The records by what they are of."""

    kernel_dispatch: list[Record] = []
    memory_copy: list[Record] = []
    hip_api: list[Record] = []
    marker_api: list[Record] = []


class KindNames(Struct):
    """Names of a kind of records and of its operations."""

    kind: str = ""
    operations: list[str] = []


class MarkerName(Struct):
    """Text of a range, by the range's correlation."""

    key: int
    value: str


class Names(Struct):
    """Texts that records refer to."""

    buffer_records: list[KindNames] = []
    marker_api: list[MarkerName] = []


class KernelSymbol(Struct):
    """A kernel's name."""

    kernel_id: int
    formatted_kernel_name: str = ""
    kernel_name: str = ""
    arch_vgpr_count: int | None = None


class Agent(Struct):
    """A CPU or a GPU."""

    id: Handle
    type: int = 0
    name: str = ""
    product_name: str = ""
    cu_count: int = 0


class ProcessFacts(Struct):
    """Facts about a process."""

    pid: int = 0


class Process(Struct):
    """What was recorded of a process."""

    metadata: ProcessFacts = field(default_factory=ProcessFacts)
    agents: list[Agent] = []
    strings: Names = field(default_factory=Names)
    kernel_symbols: list[KernelSymbol] = []
    buffer_records: Records = field(default_factory=Records)


class ToolDocument(Struct):
    """The file."""

    processes: list[Process] = field(name="rocprofiler-sdk-tool")


def read(file: ForeignFile) -> ForeignTrace:
    """Read a file.

    Raises:
        DamagedTraceError: It is no JSON of this form.
        NoGpuActivityError: It holds no kernels and no copies.
    """
    file.check_size(file.path.stat().st_size)
    try:
        processes = msgspec.json.decode(file.path.read_bytes(), type=ToolDocument).processes
    except JSON_ERRORS as error:
        reason = str(error)
        raise DamagedTraceError(FORMAT_DAMAGED(path=file.name, form="JSON of rocprofv3", reason=reason)) from error
    if not any(one.buffer_records.kernel_dispatch or one.buffer_records.memory_copy for one in processes):
        raise NoGpuActivityError(ROCPROF_WITHOUT_KERNELS(path=file.name))
    parts = [_build_tables(process) for process in processes]
    tables = {name: pl.concat([part[name] for part in parts]) for name in parts[0]}
    return ForeignTrace(tables, _describe_devices(processes))


def _build_tables(process: Process) -> dict[str, pl.DataFrame]:
    records, pid = process.buffer_records, pl.lit(process.metadata.pid)
    gpus = {agent.id.handle: number for number, agent in enumerate(_list_gpus(process))}
    texts = {marker.key: marker.value for marker in process.strings.marker_api}
    ranges = _list_spans(records.marker_api).with_columns(
        pid=pid, name=pl.col("correlation").replace_strict(texts, default=None, return_dtype=pl.String)
    )
    ops, annotations = split_ranges(ranges.drop_nulls("name"))
    return {
        "ops": ops,
        "annotations": annotations,
        "calls": _name_operations(records.hip_api, process.strings).with_columns(pid=pid),
        "kernel": _build_kernels(process, gpus),
        "memcpy": _build_copies(process, gpus),
    }


def _list_spans(records: Sequence[Record]) -> pl.DataFrame:
    columns = {
        "ts_ns": [one.start_timestamp for one in records],
        "end_ns": [one.end_timestamp for one in records],
        "tid": [one.thread_id for one in records],
        "correlation": [one.correlation_id.internal for one in records],
    }
    table = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))
    return table.with_columns(dur_ns=pl.col("end_ns") - pl.col("ts_ns")).drop("end_ns")


def _name_operations(records: Sequence[Record], names: Names) -> pl.DataFrame:
    known = {
        (kind, number): operation
        for kind, of in enumerate(names.buffer_records)
        for number, operation in enumerate(of.operations)
    }
    found = [known.get((one.kind, one.operation), "unknown") for one in records]
    return _list_spans(records).with_columns(name=pl.Series(found, dtype=pl.String))


def _build_kernels(process: Process, gpus: dict[int, int]) -> pl.DataFrame:
    records = [one for one in process.buffer_records.kernel_dispatch if one.dispatch_info]
    how = [one.dispatch_info or Dispatch() for one in records]
    symbols = {symbol.kernel_id: symbol for symbol in process.kernel_symbols}
    found = [symbols.get(one.kernel_id) for one in how]
    columns: dict[str, list[int | None]] = {
        "device": [gpus.get(one.agent_id.handle) for one in how],
        "stream": [_find_stream(record, one.queue_id) for record, one in zip(records, how, strict=True)],
        "registers_per_thread": [symbol.arch_vgpr_count if symbol else None for symbol in found],
        "shared_memory_bytes": [one.group_segment_size for one in how],
        **{f"grid_{axis}": [getattr(one.grid_size, axis) for one in how] for axis in "xyz"},
        **{f"block_{axis}": [getattr(one.workgroup_size, axis) for one in how] for axis in "xyz"},
    }
    names = [(symbol.formatted_kernel_name or symbol.kernel_name) if symbol else "unknown" for symbol in found]
    table = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64)).hstack(_list_spans(records))
    groups = (-(-pl.col(f"grid_{axis}") // pl.col(f"block_{axis}").clip(1)) for axis in "xyz")
    return table.with_columns(name=pl.Series(names, dtype=pl.String)).with_columns(
        grid=pl.format("[{},{},{}]", *groups), block=format_vector("block_x", "block_y", "block_z")
    )


def _build_copies(process: Process, gpus: dict[int, int]) -> pl.DataFrame:
    records = process.buffer_records.memory_copy
    ends = [[one.dst_agent_id, one.src_agent_id] for one in records]
    columns: dict[str, list[int | None]] = {
        "device": [next((gpus[end.handle] for end in pair if end and end.handle in gpus), None) for pair in ends],
        "stream": [_find_stream(one, None) for one in records],
        "bytes": [one.bytes for one in records],
    }
    table = _name_operations(records, process.strings)
    named = table.with_columns(name=name_copies(pl.lit("Memcpy")))
    return named.hstack(pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64)))


def _find_stream(record: Record, queue: Handle | None) -> int:
    """Return the stream, which rocprofv3 records since ROCm 7, or else the queue."""
    found = record.stream_id or queue
    return found.handle if found else 0


def _list_gpus(process: Process) -> list[Agent]:
    return [agent for agent in process.agents if agent.type == GPU_AGENT]


def _describe_devices(processes: Sequence[Process]) -> dict[str, object]:
    found = [
        {"id": number, "name": agent.product_name or agent.name, "numSms": agent.cu_count}
        for number, agent in enumerate(_list_gpus(processes[0]))
    ]
    return {"deviceProperties": found} if found else {}
