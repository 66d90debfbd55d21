"""Read Nsight Systems' exports: what CUPTI recorded, and NVTX ranges as ops, steps and annotations.

An export is an SQLite database, or a folder of Parquet files that ``nsys export`` writes. Columns are documented in
"SQLite Export Schema Reference" of Nsight Systems' user guide. Tables are created only for what was recorded, and
columns were added over the years.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import polars as pl
from polars.datatypes import DataTypeClass

from tracekit.errors import DamagedTraceError, NoGpuActivityError, NotATraceError
from tracekit.ingest.cuda_graph_captures import WHOLE_GRAPH
from tracekit.ingest.formats.tables import ForeignFile, ForeignTrace, format_vector, split_ranges
from tracekit.messages.traces import DATABASE_OF_OTHER_TOOL, FORMAT_DAMAGED, NSIGHT_WITHOUT_CUDA

TEXT_COLUMNS = frozenset(
    {"value", "text", "name", "string", "display_name", "kernel_name", "product_name", "type", "extdata"}
)
"""Columns that hold text; all others that are read hold integers."""
ROWS_AT_ONCE = 100_000
BYTES_PER_VALUE = 8
MIN_ROW_BYTES = 4
"""What a row takes at least in a database: a pointer to its cell, and the cell's length and row id."""
MAX_VALUE_BYTES = 1 << 20
"""Longest value that is read; SQLite refuses longer ones."""

ReadTable = Callable[[str, Sequence[str]], pl.DataFrame]
"""Reads some columns of a table. A missing table has no rows, a missing column is null."""


@contextmanager
def open_database(file: ForeignFile) -> Iterator["SqliteTables"]:
    """Open an SQLite database, and yield its tables.

    Raises:
        DamagedTraceError: It is cut short or corrupt.
        TraceTooLargeError: Its tables need more memory than allowed.
    """
    try:
        with closing(sqlite3.connect(f"{file.path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = _decode_text
            yield SqliteTables(connection, file)
    except sqlite3.Error as error:
        raise DamagedTraceError(FORMAT_DAMAGED(path=file.name, form="SQLite database", reason=str(error))) from error


def open_parquet_folder(file: ForeignFile) -> ReadTable:
    """Return the function that reads the tables of a folder.

    It raises DamagedTraceError for a file that is no Parquet, and TraceTooLargeError.
    """

    def read(table: str, columns: Sequence[str]) -> pl.DataFrame:
        path = file.path / f"{table}.parquet"
        if not path.is_file():
            return pl.DataFrame(schema=_choose_types(columns))
        try:
            found = pl.read_parquet_schema(path)
            file.check_size(pl.scan_parquet(path).select(pl.len()).collect().item() * len(columns) * BYTES_PER_VALUE)
            frame = pl.read_parquet(path, columns=[name for name in columns if name in found])
            return frame.select(
                (pl.col(name) if name in found else pl.lit(None)).cast(dtype, strict=False).alias(name)
                for name, dtype in _choose_types(columns).items()
            )
        except (pl.exceptions.PolarsError, OSError) as error:
            raise _make_damaged_error(path, error) from error

    return read


def _make_damaged_error(path: Path, error: Exception) -> DamagedTraceError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return DamagedTraceError(FORMAT_DAMAGED(path=str(path), form="Parquet file", reason=reason))


class SqliteTables:
    """The tables of a database; views and virtual tables aren't among them.

    Attributes:
        names: Their names.
    """

    def __init__(self, connection: sqlite3.Connection, file: ForeignFile) -> None:
        self._connection = connection
        self._file = file
        self._size_bytes = 0
        self._most_rows = file.path.stat().st_size // MIN_ROW_BYTES
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'")
        self.names = {name for (name,) in found.fetchall()}

    def read(self, table: str, columns: Sequence[str]) -> pl.DataFrame:
        """Read some columns of a table."""
        types = _choose_types(columns)
        if table not in self.names:
            return pl.DataFrame(schema=types)
        known = {name for _, name, *_ in self._connection.execute(f'PRAGMA table_info("{table}")')}
        wanted = ", ".join(_select_column(name, name in known) for name in columns)
        cursor = self._connection.execute(f'SELECT {wanted} FROM "{table}"')
        parts, count = [pl.DataFrame(schema=types)], 0
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            count += len(rows)
            if count > self._most_rows:  # pages may refer to one another, so that a small file has rows without end
                raise sqlite3.DatabaseError(f"{table} lists more rows than the file can hold")
            parts.append(pl.DataFrame(rows, schema=types, orient="row"))
            self._size_bytes += int(parts[-1].estimated_size())
            self._file.check_size(self._size_bytes)
        return pl.concat(parts)


def _select_column(name: str, is_known: bool) -> str:
    """Return the SQL of a column, converted, as SQLite lets any column hold any type."""
    if not is_known:
        return "NULL"
    return f'CAST("{name}" AS {"TEXT" if name in TEXT_COLUMNS else "INTEGER"})'


def _choose_types(columns: Sequence[str]) -> dict[str, DataTypeClass]:
    return {name: pl.String if name in TEXT_COLUMNS else pl.Int64 for name in columns}


def _decode_text(text: bytes) -> str:
    return text.decode(errors="replace")


KERNELS, CALLS, RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
COPIES, SETS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
SYNCS, RECORDS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"

_ACTIVITY = ("start", "end", "deviceId", "streamId", "correlationId", "graphNodeId", "globalPid")
_LAUNCHED = {
    "deviceId": "device",
    "streamId": "stream",
    "correlationId": "correlation",
    "graphNodeId": "graph_node_id",
}
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
"""CUpti_ActivityMemcpyKind; the others are of CUDA arrays."""
_MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
"""Nsight's CUDA_MEMOPR_MEMORY_KIND."""
_EVENT_SYNC_NAMES = {1: "Event Sync", 2: "Stream Wait Event"}
_SYNC_NAMES = {3: "Stream Sync", 4: "Context Sync"} | _EVENT_SYNC_NAMES
"""CUpti_ActivitySynchronizationType, named as Kineto does."""
_PUSH_POP_RANGE, _START_END_RANGE = 59, 60
"""NVTX event types of ranges."""
_THREAD_BITS = 24
"""A global thread id holds the thread in its lowest bits, and the process in those above."""


def read(file: ForeignFile) -> ForeignTrace:
    """Read what ``nsys export`` wrote with ``--type sqlite``, or the folder of ``--type parquetdir``.

    Raises:
        TraceError: It is damaged, too large, or holds no GPU activity.
    """
    if file.path.is_dir():
        return _read_report(open_parquet_folder(file), file)
    with open_database(file) as tables:
        return _read_report(tables.read, file)


def _read_report(read: ReadTable, file: ForeignFile) -> ForeignTrace:
    texts = read("StringIds", ("id", "value")).unique("id", keep="first")
    if texts.is_empty():
        raise NotATraceError(DATABASE_OF_OTHER_TOOL(path=file.name))
    activities = {"kernel": _read_kernels(read, texts), "memcpy": _read_copies(read), "memset": _read_sets(read)}
    activities["kernel"] = pl.concat(
        [activities["kernel"], _read_whole_graphs(read, activities.values())], how="diagonal"
    )
    if all(table.is_empty() for table in activities.values()):
        raise NoGpuActivityError(NSIGHT_WITHOUT_CUDA(path=file.name))
    ordinals = _read_ordinals(read)
    ranges = _read_ranges(read, texts)
    file.check_texts([ranges])
    ops, annotations = split_ranges(ranges)
    tables = {
        "ops": ops,
        "annotations": annotations,
        "calls": _read_calls(read, texts),
        **{kind: _number_devices(table, ordinals) for kind, table in activities.items()},
        "syncs": _read_syncs(read),
    }
    return ForeignTrace(tables, _read_keys(read), _read_thread_names(read, texts), has_processes=True)


def _read_kernels(read: ReadTable, texts: pl.DataFrame) -> pl.DataFrame:
    sizes = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
    memory = ("staticSharedMemory", "dynamicSharedMemory")
    rows = read(KERNELS, (*_ACTIVITY, "demangledName", "shortName", "registersPerThread", *memory, *sizes))
    return (
        _name_rows(rows.with_columns(nameId=pl.coalesce("demangledName", "shortName")), texts)
        .rename({**_LAUNCHED, "registersPerThread": "registers_per_thread"})
        .with_columns(
            *_measure_span(),
            grid=format_vector(*sizes[:3]),
            block=format_vector(*sizes[3:]),
            shared_memory_bytes=pl.sum_horizontal(memory),
        )
    )


def _read_whole_graphs(read: ReadTable, recorded: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Read the launches of CUDA graphs that are one row each, as kernels.

    Args:
        read: Reads a table.
        recorded: What else ran; of a launch whose nodes are among it, the row for all of them is left out.
    """
    launch = ["globalPid", "correlationId"]
    nodes = pl.concat(table.select("globalPid", correlationId="correlation") for table in recorded)
    rows = read(GRAPHS, (*_ACTIVITY, "graphId", "graphExecId")).join(nodes, on=launch, how="anti", nulls_equal=True)
    graph = pl.coalesce(pl.when(pl.col(name) > 0).then(name) for name in ("graphId", "graphExecId"))
    name = pl.format("{} {}", pl.lit(WHOLE_GRAPH), graph).fill_null(WHOLE_GRAPH)
    return rows.rename(_LAUNCHED).with_columns(*_measure_span(), name=name)


def _read_copies(read: ReadTable) -> pl.DataFrame:
    rows = read(COPIES, (*_ACTIVITY, "bytes", "copyKind", "srcKind", "dstKind"))
    kind, source, target = (
        pl.col(column).replace_strict(names, default=None, return_dtype=pl.String)
        for column, names in (("copyKind", _COPY_KINDS), ("srcKind", _MEMORY_KINDS), ("dstKind", _MEMORY_KINDS))
    )
    memory = pl.format(" ({} -> {})", source, target).fill_null("")
    name = pl.format("Memcpy {}{}", kind.fill_null("of an array"), memory)
    return rows.rename(_LAUNCHED).with_columns(*_measure_span(), name=name)


def _read_sets(read: ReadTable) -> pl.DataFrame:
    rows = read(SETS, (*_ACTIVITY, "bytes"))
    return rows.rename(_LAUNCHED).with_columns(*_measure_span(), name=pl.lit("Memset (Device)"))


def _read_ordinals(read: ReadTable) -> pl.DataFrame:
    """Read which of the machine's GPUs each process means by a number: some see only a part of them."""
    seen = read("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid")).drop_nulls()
    listed = _read_gpus(read).select(gpuId="row", ordinal="id").drop_nulls()
    found = seen.join(listed, on="gpuId").unique(["pid", "cudaId"], keep="first", maintain_order=True)
    return found.select("pid", "ordinal", device="cudaId")


def _number_devices(activities: pl.DataFrame, ordinals: pl.DataFrame) -> pl.DataFrame:
    """Add the process, and give each GPU its number on the machine."""
    placed = activities.with_columns(pid=_split_process("globalPid"))
    joined = placed.join(ordinals, on=["pid", "device"], how="left", maintain_order="left")
    return joined.with_columns(device=pl.coalesce("ordinal", "device"))


def _read_calls(read: ReadTable, texts: pl.DataFrame) -> pl.DataFrame:
    rows = read(CALLS, ("start", "end", "globalTid", "correlationId", "nameId"))
    return _name_rows(rows, texts).with_columns(*_measure_span(), *_split_thread(), correlation="correlationId")


def _read_syncs(read: ReadTable) -> pl.DataFrame:
    """Read what was waited for; of the waits for an event, those whose record ``--cuda-event-trace=true`` noted."""
    rows = read(SYNCS, ("start", "end", "streamId", "syncType", *_EVENT))
    name = pl.col("syncType").replace_strict(_SYNC_NAMES, default=None, return_dtype=pl.String)
    # Of a synchronisation that is none of one stream, Nsight writes the largest number.
    stream = pl.when(pl.col("streamId") < 2**31 - 1).then("streamId").otherwise(-1)
    table = _find_records(rows.with_columns(*_measure_span(), name=name, stream=stream), read)
    known = pl.col("wait_on_record").is_not_null() | ~pl.col("name").is_in(list(_EVENT_SYNC_NAMES.values()))
    process = _split_process("globalPid").replace(0, None)
    return table.drop_nulls("name").filter(known).with_columns(correlation="correlationId", pid=process)


_EVENT = ("correlationId", "globalPid", "contextId", "eventId", "eventSyncId")
_SAME_EVENT = ["globalPid", "contextId", "eventId"]


def _find_records(syncs: pl.DataFrame, read: ReadTable) -> pl.DataFrame:
    """Find the record that each wait for an event is for.

    ``eventSyncId`` says it since 2024; before, it is the last record of the event that was called before the wait.
    """
    known = pl.col(_SAME_EVENT).fill_null(0)
    records = read(RECORDS, ("streamId", *_EVENT)).with_columns(known).drop_nulls("correlationId")
    told = records.select("globalPid", "eventSyncId", by_id="correlationId").filter(pl.col("eventSyncId") > 0)
    last = records.select(*_SAME_EVENT, "correlationId", by_order="correlationId").sort("correlationId")
    waits = (
        syncs.with_columns(known)
        .join(told.unique(["globalPid", "eventSyncId"], keep="last"), on=["globalPid", "eventSyncId"], how="left")
        .sort("correlationId")
        .join_asof(last, on="correlationId", by=_SAME_EVENT, check_sortedness=False)
    )
    is_for_event = pl.col("name").is_in(list(_EVENT_SYNC_NAMES.values()))
    record = pl.when(is_for_event).then(pl.coalesce("by_id", "by_order"))
    key = ["globalPid", "wait_on_record"]
    streams = records.select("globalPid", wait_on_record="correlationId", wait_on_stream="streamId").unique(key)
    return waits.with_columns(wait_on_record=record).join(streams, on=key, how="left")


def _read_ranges(read: ReadTable, texts: pl.DataFrame) -> pl.DataFrame:
    rows = read(RANGES, ("start", "end", "eventType", "text", "textId", "globalTid"))
    ranges = rows.filter(pl.col("eventType").is_in([_PUSH_POP_RANGE, _START_END_RANGE])).drop_nulls("end")
    named = ranges.join(texts, left_on="textId", right_on="id", how="left", maintain_order="left")
    return named.with_columns(*_measure_span(), *_split_thread(), name=pl.coalesce("text", "value")).drop_nulls("name")


def _read_keys(read: ReadTable) -> dict[str, object]:
    devices = _read_gpus(read).select(
        "id",
        "name",
        numSms=pl.col("smCount").fill_null(0),
        totalGlobalMem=pl.col("totalMemory").fill_null(0),
        computeMajor="computeMajor",
        computeMinor="computeMinor",
    )
    began = read("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"].drop_nulls()
    base = {"baseTimeNanoseconds": began[0]} if len(began) and 0 <= began[0] < 2**62 else {}
    return {**base, **({"deviceProperties": devices.to_dicts()} if devices.height else {})}


def _read_gpus(read: ReadTable) -> pl.DataFrame:
    """Read the machine's GPUs: their number in CUDA as ``id``, that in the report as ``row``."""
    columns = ("id", "cuDevice", "name", "smCount", "totalMemory", "computeMajor", "computeMinor")
    number = pl.coalesce(pl.when(pl.col("cuDevice") >= 0).then("cuDevice"), "id")
    return read("TARGET_INFO_GPU", columns).drop_nulls("name").with_columns(id=number, row="id")


def _read_thread_names(read: ReadTable, texts: pl.DataFrame) -> dict[tuple[int, int], str]:
    rows = _name_rows(read("ThreadNames", ("nameId", "globalTid")), texts).select(*_split_thread(), "name")
    return {(pid, tid): name for pid, tid, name in rows.drop_nulls().iter_rows()}


def _name_rows(rows: pl.DataFrame, texts: pl.DataFrame) -> pl.DataFrame:
    """Look up the texts that ``nameId`` numbers."""
    named = rows.join(texts, left_on="nameId", right_on="id", how="left", maintain_order="left")
    return named.with_columns(name=pl.col("value").fill_null("unknown"))


def _measure_span() -> tuple[pl.Expr, pl.Expr]:
    return pl.col("start").alias("ts_ns"), (pl.col("end") - pl.col("start")).alias("dur_ns")


def _split_thread() -> tuple[pl.Expr, pl.Expr]:
    """Split a global thread id into process and thread."""
    return _split_process("globalTid").alias("pid"), (pl.col("globalTid") % (1 << _THREAD_BITS)).alias("tid")


def _split_process(column: str) -> pl.Expr:
    """Split the process off a global id of a process or a thread."""
    size = 1 << _THREAD_BITS
    return pl.col(column) // size % size
