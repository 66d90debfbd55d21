"""Writes a trace as ``nsys export`` would: an SQLite database, or a folder of Parquet files."""

import sqlite3
from pathlib import Path

import polars as pl

from tracekit.trace import RankTrace

GPU = {
    "id": 0, "cuDevice": 0, "name": "NVIDIA A100-SXM4-80GB", "smCount": 108, "totalMemory": 84_990_623_744,
    "computeMajor": 8, "computeMinor": 0,
}  # fmt: skip
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
MEMORY_KINDS = {"Pageable": 0, "Pinned": 1, "Device": 2}


def build_tables(trace: RankTrace) -> dict[str, pl.DataFrame]:
    """Build Nsight's tables of a trace; its ops become NVTX ranges as emit_nvtx writes them."""
    ops = trace.ops.with_row_index("number").with_columns(
        text=pl.concat_str(
            "name",
            pl.format(", seq = {}", "sequence"),
            pl.format(", op_id = {}", "number"),
            pl.format(", sizes = {}", "input_dims"),
            ignore_nulls=True,
        )
    )
    ranges = pl.concat([ops, trace.annotations.with_columns(text="name")], how="diagonal")
    names = pl.concat([trace.calls["name"], trace.activities["name"]]).unique(maintain_order=True)
    texts = pl.DataFrame({"id": range(len(names)), "value": names}, schema={"id": pl.Int64, "value": pl.String})
    base = int(min(table["ts_ns"].min() for table in (trace.ops, trace.activities) if table.height))
    span = {"start": pl.col("ts_ns") - base, "end": pl.col("ts_ns") + pl.col("dur_ns") - base}
    thread = {"globalTid": (pl.lit(3) * 2**24 + pl.col("pid")) * 2**24 + pl.col("tid")}
    named = pl.col("name").replace_strict(names, range(len(names)), return_dtype=pl.Int64)
    one = pl.lit(1)
    activity = trace.activities.select(
        *(value.alias(key) for key, value in span.items()),
        "kind",
        pl.col("name"),
        "bytes",
        deviceId="device",
        streamId="stream",
        correlationId="correlation",
        demangledName=named,
        registersPerThread="registers_per_thread",
        staticSharedMemory="shared_memory_bytes",
        dynamicSharedMemory=pl.lit(0),
        gridX="blocks",
        gridY=one,
        gridZ=one,
        blockX="threads_per_block",
        blockY=one,
        blockZ=one,
        copyKind=pl.col("name").str.extract(r"Memcpy (\w+)").replace_strict(COPY_KINDS, default=0),
        srcKind=pl.col("name").str.extract(r"\((\w+)").replace_strict(MEMORY_KINDS, default=2),
        dstKind=pl.col("name").str.extract(r"-> (\w+)").replace_strict(MEMORY_KINDS, default=2),
    )
    kinds = {"KERNEL": "kernel", "MEMCPY": "memcpy", "MEMSET": "memset"}
    return {
        "StringIds": texts,
        **{
            f"CUPTI_ACTIVITY_KIND_{name}": activity.filter(kind=kind).drop("kind", "name")
            for name, kind in kinds.items()
        },
        "CUPTI_ACTIVITY_KIND_RUNTIME": trace.calls.select(correlationId="correlation", nameId=named, **span, **thread),
        "NVTX_EVENTS": ranges.select("text", eventType=pl.lit(59), textId=pl.lit(None, pl.Int64), **span, **thread),
        "TARGET_INFO_GPU": pl.DataFrame(GPU),
        "TARGET_INFO_SESSION_START_TIME": pl.DataFrame({"utcEpochNs": base}),
    }


def write_database(path: Path, tables: dict[str, pl.DataFrame]) -> Path:
    """Write the tables as ``nsys export --type sqlite`` does."""
    with sqlite3.connect(path) as database:
        for name, table in tables.items():
            database.execute(f"CREATE TABLE {name} ({', '.join(map(_quote, table.columns))})")
            places = ", ".join("?" * table.width)
            database.executemany(f"INSERT INTO {name} VALUES ({places})", table.iter_rows())
    database.close()
    return path


def write_parquet_folder(path: Path, tables: dict[str, pl.DataFrame]) -> Path:
    """Write the tables as ``nsys export --type parquetdir`` does."""
    path.mkdir()
    for name, table in tables.items():
        table.write_parquet(path / f"{name}.parquet")
    return path


def _quote(name: str) -> str:
    return f'"{name}"'
