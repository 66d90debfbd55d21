"""Read rocpd, the SQLite database that rocprofv3 writes by default since ROCm 7.

The tables of a process end in its id; those of several may lie in one file. A call and what it launches have events of
the same ``stack_id`` (``rocpd_tables.sql`` and ``generateRocpd.cpp`` of rocprofiler-sdk).
"""

from collections.abc import Sequence

import polars as pl

from tracekit.errors import NoGpuActivityError
from tracekit.ingest.formats.nsight import SqliteTables, open_database
from tracekit.ingest.formats.tables import ForeignFile, ForeignTrace, format_vector, name_copies, split_ranges
from tracekit.messages.traces import ROCPROF_WITHOUT_KERNELS

KERNELS, COPIES = "rocpd_kernel_dispatch", "rocpd_memory_copy"
_AXES = "xyz"
_SPAN = ("pid", "tid", "start", "end", "event_id")


def read(file: ForeignFile) -> ForeignTrace:
    """Read a file.

    Raises:
        TraceError: It is damaged, too large, or holds no GPU activity.
    """
    with open_database(file) as tables:
        parts = [_Process(tables, suffix) for suffix in _list_suffixes(tables)]
        found = [part.build_tables() for part in parts]
        file.check_texts(table for part in found for table in part.values())
        devices = [device for part in parts for device in part.describe_gpus()]
    if not any(part[kind].height for part in found for kind in ("kernel", "memcpy")):
        raise NoGpuActivityError(ROCPROF_WITHOUT_KERNELS(path=file.name))
    joined = {name: pl.concat((part[name] for part in found), how="vertical") for name in found[0]}
    return ForeignTrace(joined, {"deviceProperties": devices} if devices else {})


def _list_suffixes(tables: SqliteTables) -> list[str]:
    return sorted({name[len(KERNELS) :] for name in tables.names if name.startswith(KERNELS)})


class _Process:
    """The tables of a process."""

    def __init__(self, tables: SqliteTables, suffix: str) -> None:
        self._tables = tables
        self._suffix = suffix
        self._strings = self._read("rocpd_string", ("id", "string"))
        self._events = self._read("rocpd_event", ("id", "category_id", "stack_id", "extdata"))
        agents = self._read("rocpd_info_agent", ("id", "type", "type_index", "name", "product_name", "extdata"))
        self._gpus = agents.filter(pl.col("type") == "GPU").with_columns(device=pl.col("type_index").fill_null(0))

    def build_tables(self) -> dict[str, pl.DataFrame]:
        """Build the tables of ``fields.TABLES``."""
        regions = self._name(self._read("rocpd_region", (*_SPAN, "name_id")))
        category = self._look_up("category_id")
        is_call, is_range = category.str.starts_with("HIP"), category.str.starts_with("MARKER")
        message = pl.col("extdata").str.json_path_match("$.message")
        spans = regions.select("ts_ns", "dur_ns", "pid", "tid", "name", "correlation", "category_id", "extdata")
        ranges = spans.filter(is_range).with_columns(name=message).drop_nulls("name")
        ops, annotations = split_ranges(ranges)
        calls = spans.filter(is_call).drop("category_id", "extdata")
        return {
            "ops": ops, "annotations": annotations, "calls": calls,
            "kernel": self._build_kernels(), "memcpy": self._build_copies(),
        }  # fmt: skip

    def describe_gpus(self) -> list[dict[str, object]]:
        """Return what Kineto writes as ``deviceProperties``."""
        units = pl.col("extdata").str.json_path_match("$.cu_count").cast(pl.Int64, strict=False).fill_null(0)
        name = pl.coalesce(pl.when(pl.col("product_name") != "").then("product_name"), "name").fill_null("")
        return self._gpus.select(id="device", name=name, numSms=units).to_dicts()

    def _build_kernels(self) -> pl.DataFrame:
        sizes = [f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in _AXES]
        rows = self._read(KERNELS, (*_SPAN, "agent_id", "kernel_id", "stream_id", "group_segment_size", *sizes))
        symbols = self._read("rocpd_info_kernel_symbol", ("id", "display_name", "kernel_name", "arch_vgpr_count"))
        named = self._join(rows, symbols.rename({"id": "kernel_id"}), "kernel_id")
        shown = pl.when(pl.col("display_name") != "").then("display_name")
        blocks = (-(-pl.col(f"grid_size_{axis}") // pl.col(f"workgroup_size_{axis}").clip(1)) for axis in _AXES)
        return self._add_times(self._join(named, self._gpus.select(agent_id="id", device="device"), "agent_id")).select(
            "ts_ns", "dur_ns", "pid", "tid", "correlation", "device",
            name=pl.coalesce(shown, "kernel_name", pl.lit("unknown")),
            stream="stream_id",
            grid=pl.format("[{},{},{}]", *blocks),
            block=format_vector(*(f"workgroup_size_{axis}" for axis in _AXES)),
            registers_per_thread="arch_vgpr_count",
            shared_memory_bytes="group_segment_size",
        )  # fmt: skip

    def _build_copies(self) -> pl.DataFrame:
        rows = self._read(COPIES, (*_SPAN, "name_id", "dst_agent_id", "src_agent_id", "size", "stream_id"))
        for end in ("dst", "src"):
            gpus = self._gpus.select(pl.col("id").alias(f"{end}_agent_id"), pl.col("device").alias(end))
            rows = self._join(rows, gpus, f"{end}_agent_id")
        named = self._name(rows).with_columns(name=name_copies(pl.lit("Memcpy")))
        device = pl.coalesce("dst", "src").alias("device")
        spans = ("ts_ns", "dur_ns", "pid", "tid", "correlation", "name")
        return named.select(*spans, device, stream="stream_id", bytes="size")

    def _read(self, table: str, columns: Sequence[str]) -> pl.DataFrame:
        return self._tables.read(table + self._suffix, columns)

    def _join(self, rows: pl.DataFrame, facts: pl.DataFrame, key: str) -> pl.DataFrame:
        return rows.join(facts.unique(key, keep="first"), on=key, how="left", maintain_order="left")

    def _name(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self._add_times(rows).with_columns(name=self._look_up("name_id").fill_null("unknown"))

    def _look_up(self, column: str) -> pl.Expr:
        texts = self._strings.unique("id", keep="first")
        return pl.col(column).replace_strict(texts["id"], texts["string"], default=None, return_dtype=pl.String)

    def _add_times(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self._join(rows, self._events.rename({"id": "event_id"}), "event_id").with_columns(
            ts_ns="start", dur_ns=pl.col("end") - pl.col("start"), correlation="stack_id"
        )
