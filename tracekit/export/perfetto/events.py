"""Encode trace events as JSON, one per line.

The input is columns, so that millions of events take seconds.

The format is Chrome's Trace Event Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import io

import msgspec
import polars as pl

START_US = pl.col("start_ns") / 1e3
SLICE_COLUMNS = ("ph", "cat", "name", "pid", "tid", "ts", "dur")


def encode_process(pid: int, name: str, order: int) -> bytes:
    """Encode the name and sort order of a process."""
    return _encode_metadata("process", pid, 0, name, order)


def encode_thread(pid: int, tid: int, name: str, order: int) -> bytes:
    """Encode the name and sort order of a thread."""
    return _encode_metadata("thread", pid, tid, name, order)


def encode_slices(table: pl.DataFrame) -> bytes:
    """Encode complete events (``ph: X``).

    Args:
        table: Columns ``cat``, ``name``, ``pid``, ``tid``, ``start_ns``, ``dur_ns``, and ``args``, a struct, where
            there is something to say.
    """
    rows = table.with_columns(ph=pl.lit("X"), ts=START_US, dur=pl.col("dur_ns") / 1e3)
    return _encode_rows(rows.select(*SLICE_COLUMNS, *rows.select(pl.col("^args$")).columns))


def encode_counter(table: pl.DataFrame, name: str) -> bytes:
    """Encode a counter over time.

    Args:
        table: Columns ``pid``, ``start_ns``, ``value``.
        name: Name of the counter.
    """
    args = pl.struct(pl.col("value").round(2).alias(name))
    rows = table.select("pid", ph=pl.lit("C"), name=pl.lit(name), tid=pl.lit(0), ts=START_US, args=args)
    return _encode_rows(rows)


def encode_flows(begins: pl.DataFrame, ends: pl.DataFrame, category: str) -> bytes:
    """Encode arrows from slice to slice.

    Args:
        begins: Columns ``pid``, ``tid``, ``at_ns`` (a time within the slice that an arrow leaves) and ``id``, which no
            other arrow of the category has.
        ends: The same of the slices that the arrows lead to.
        category: Category and name of the arrows.
    """
    place = ("pid", "tid", "id")
    common = {"cat": pl.lit(category), "name": pl.lit(category), "ts": pl.col("at_ns") / 1e3}
    leave = begins.select(*place, ph=pl.lit("s"), **common)
    arrive = ends.select(*place, ph=pl.lit("f"), bp=pl.lit("e"), **common)
    return b",\n".join(filter(None, (_encode_rows(leave), _encode_rows(arrive))))


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
