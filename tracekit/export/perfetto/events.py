"""Encode trace events as JSON, one per line.

The input is columns, so that millions of events take seconds.

The format is Chrome's Trace Event Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import io

import msgspec
import polars as pl

START_US = pl.col("start_ns") / 1e3
SLICE_COLUMNS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")


def encode_process(pid: int, name: str, order: int) -> bytes:
    """Encode the name and sort order of a process."""
    return _encode_metadata("process", pid, 0, name, order)


def encode_thread(pid: int, tid: int, name: str, order: int) -> bytes:
    """Encode the name and sort order of a thread."""
    return _encode_metadata("thread", pid, tid, name, order)


def encode_slices(table: pl.DataFrame) -> bytes:
    """Encode complete events (``ph: X``).

    Args:
        table: Columns ``cat``, ``name``, ``pid``, ``tid``, ``start_ns``, ``dur_ns``, ``args`` (a struct).
    """
    rows = table.with_columns(ph=pl.lit("X"), ts=START_US, dur=pl.col("dur_ns") / 1e3)
    return _encode_rows(rows.select(SLICE_COLUMNS))


def encode_counter(table: pl.DataFrame, name: str) -> bytes:
    """Encode a counter over time.

    Args:
        table: Columns ``pid``, ``start_ns``, ``value``.
        name: Name of the counter.
    """
    args = pl.struct(pl.col("value").round(2).alias(name))
    rows = table.select("pid", ph=pl.lit("C"), name=pl.lit(name), tid=pl.lit(0), ts=START_US, args=args)
    return _encode_rows(rows)


def encode_flows(table: pl.DataFrame, name: str, number: int) -> bytes:
    """Encode arrows from each row to the next.

    Args:
        table: Columns ``pid``, ``tid``, ``start_ns``, ``dur_ns`` of the slices, in order.
        name: Name of the arrows.
        number: Number of the timeline; gives the arrows of each timeline unique ids.
    """
    middle = table.with_row_index("place").with_columns(ts=(pl.col("start_ns") + pl.col("dur_ns") // 2) / 1e3)
    common = {"cat": pl.lit("critical_path"), "name": pl.lit(name)}
    base = number * 10**9
    begin = middle.head(-1).select("pid", "tid", "ts", ph=pl.lit("s"), id=pl.col("place") + base, **common)
    arrives = {"ph": pl.lit("f"), "bp": pl.lit("e"), "id": pl.col("place") + base - 1}
    end = middle.tail(-1).select("pid", "tid", "ts", **arrives, **common)
    return b",\n".join(filter(None, (_encode_rows(begin), _encode_rows(end))))


def _encode_metadata(what: str, pid: int, tid: int, name: str, order: int) -> bytes:
    place = {"ph": "M", "pid": pid, "tid": tid, "ts": 0}
    rows = (
        {"name": f"{what}_name", "args": {"name": name}},
        {"name": f"{what}_sort_index", "args": {"sort_index": order}},
    )
    return b",\n".join(msgspec.json.encode(place | row) for row in rows)


def _encode_rows(rows: pl.DataFrame) -> bytes:
    """Encode rows as comma-separated JSON; each line break ends a row, as those within strings are escaped."""
    buffer = io.BytesIO()
    rows.write_ndjson(buffer)
    return buffer.getvalue().rstrip(b"\n").replace(b"\n", b",\n")
