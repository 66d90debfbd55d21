"""Trace events as JSON, a line each, set apart by commas; columns in, so that millions take seconds.

The format is Chrome's Trace Event Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import io

import msgspec
import polars as pl

US = pl.col("start_ns") / 1e3
SLICE = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")


def process(pid: int, name: str, order: int) -> bytes:
    """Name and place of a process."""
    return _named("process", pid, 0, name, order)


def thread(pid: int, tid: int, name: str, order: int) -> bytes:
    """Name and place of a thread."""
    return _named("thread", pid, tid, name, order)


def slices(table: pl.DataFrame) -> bytes:
    """Complete events.

    Args:
        table: ``cat``, ``name``, ``pid``, ``tid``, ``start_ns``, ``dur_ns``, ``args`` (a struct).
    """
    rows = table.with_columns(ph=pl.lit("X"), ts=US, dur=pl.col("dur_ns") / 1e3)
    return _encoded(rows.select(SLICE))


def counter(table: pl.DataFrame, name: str) -> bytes:
    """A counter over time.

    Args:
        table: ``pid``, ``start_ns``, ``value``.
        name: What it counts.
    """
    args = pl.struct(pl.col("value").round(2).alias(name))
    rows = table.select("pid", ph=pl.lit("C"), name=pl.lit(name), tid=pl.lit(0), ts=US, args=args)
    return _encoded(rows)


def flows(table: pl.DataFrame, name: str, number: int) -> bytes:
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
    return b",\n".join(filter(None, (_encoded(begin), _encoded(end))))


def _named(what: str, pid: int, tid: int, name: str, order: int) -> bytes:
    place = {"ph": "M", "pid": pid, "tid": tid, "ts": 0}
    rows = (
        {"name": f"{what}_name", "args": {"name": name}},
        {"name": f"{what}_sort_index", "args": {"sort_index": order}},
    )
    return b",\n".join(msgspec.json.encode(place | row) for row in rows)


def _encoded(rows: pl.DataFrame) -> bytes:
    """Line breaks within texts are escaped, so each one ends a row."""
    buffer = io.BytesIO()
    rows.write_ndjson(buffer)
    return buffer.getvalue().rstrip(b"\n").replace(b"\n", b",\n")
