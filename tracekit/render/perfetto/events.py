"""Trace events as JSON, a line each; columns in, so that millions take seconds.

The format is Chrome's Trace Event Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from collections.abc import Iterator

import msgspec
import polars as pl

US = pl.col("start_ns") / 1e3
SLICE = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")


def process(pid: int, name: str, order: int) -> Iterator[str]:
    """Name and place of a process."""
    yield _metadata("process_name", pid, None, {"name": name})
    yield _metadata("process_sort_index", pid, None, {"sort_index": order})


def thread(pid: int, tid: int, name: str, order: int) -> Iterator[str]:
    """Name and place of a thread."""
    yield _metadata("thread_name", pid, tid, {"name": name})
    yield _metadata("thread_sort_index", pid, tid, {"sort_index": order})


def slices(table: pl.DataFrame) -> Iterator[str]:
    """Complete events.

    Args:
        table: ``cat``, ``name``, ``pid``, ``tid``, ``start_ns``, ``dur_ns``, ``args`` (a struct).
    """
    rows = table.with_columns(ph=pl.lit("X"), ts=US, dur=pl.col("dur_ns") / 1e3)
    yield from _encoded(rows.select(SLICE))


def counter(table: pl.DataFrame, name: str) -> Iterator[str]:
    """A counter over time.

    Args:
        table: ``pid``, ``start_ns``, ``value``.
        name: What it counts.
    """
    args = pl.struct(pl.col("value").round(2).alias(name))
    rows = table.select("pid", ph=pl.lit("C"), name=pl.lit(name), tid=pl.lit(0), ts=US, args=args)
    yield from _encoded(rows)


def flows(table: pl.DataFrame, name: str, number: int) -> Iterator[str]:
    """Arrows from each row to the next.

    Args:
        table: ``pid``, ``tid``, ``start_ns``, ``dur_ns`` of the slices, in order.
        name: What the arrows are.
        number: Sets the arrows of one timeline apart from those of others.
    """
    middle = table.with_row_index("place").with_columns(ts=(pl.col("start_ns") + pl.col("dur_ns") // 2) / 1e3)
    common = {"cat": pl.lit("critical_path"), "name": pl.lit(name)}
    base = number * 10**9
    begin = middle.head(-1).select("pid", "tid", "ts", ph=pl.lit("s"), id=pl.col("place") + base, **common)
    arrives = {"ph": pl.lit("f"), "bp": pl.lit("e"), "id": pl.col("place") + base - 1}
    end = middle.tail(-1).select("pid", "tid", "ts", **arrives, **common)
    yield from _encoded(begin)
    yield from _encoded(end)


def _metadata(name: str, pid: int, tid: int | None, args: dict[str, object]) -> str:
    return msgspec.json.encode({"ph": "M", "name": name, "pid": pid, "tid": tid or 0, "ts": 0, "args": args}).decode()


def _encoded(rows: pl.DataFrame) -> list[str]:
    return rows.select(pl.struct(pl.all()).struct.json_encode())[:, 0].to_list()
