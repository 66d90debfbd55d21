"""The ledger: every event of a file is read or counted with what became of it, by any reader."""

import gzip
import io
import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codes import find_message, has_code, list_codes
from tests.conftest import SAMPLES
from tracekit.doctor import examine
from tracekit.errors import NoGpuActivityError, TracekitError
from tracekit.ingest import load_bytes
from tracekit.ingest.decode import decode
from tracekit.ingest.fields import CATEGORIES, is_worker_call
from tracekit.ingest.ledger import DROPPED, EVENTS, MAX_EVENT_KINDS, READ, count_events, describe_events
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import RankTrace

pytestmark = pytest.mark.heavy

FOLDER = Path(os.environ.get("TRACEKIT_REAL_TRACES", ""))
REAL = sorted(path for path in FOLDER.glob("*.json.gz") if ".et." not in path.name) if FOLDER.name else []
READERS = (0, 200 << 20)
"""Sizes up to which files are decoded at once: the scanner reads all, or nothing."""

Events = list[dict[str, Any]]


def build(kernels: int = 4) -> TraceBuilder:
    builder = TraceBuilder()
    for number in range(kernels):
        builder.op("aten::mm", 100 * number, 30, dims=[[64, 32], [32, 16]], types=["float", "float"])
        builder.kernel(f"gemm_{number}", 100 * number + 20, 50, launch=100 * number + 5)
    return builder


def read(data: bytes, small_bytes: int, *, needs_gpu: bool = True, stacks: bool = False) -> RankTrace:
    return decode(io.BytesIO(data), "test", small_bytes=small_bytes, needs_gpu=needs_gpu, stacks=stacks)


def read_alike(data: bytes, **options: Any) -> RankTrace:
    """Read with both decoders, whose ledgers must be the same."""
    fast, careful = (read(data, small_bytes, **options) for small_bytes in READERS)
    assert fast.ledger.equals(careful.ledger)
    return fast


def count_by_hand(events: Events) -> Counter[tuple[str, str]]:
    """Count the events by the table that they belong to, or else by category and phase."""
    counts: Counter[tuple[str, str]] = Counter()
    for event in events:
        category, phase = event.get("cat") or "", event.get("ph", "")
        known = phase in ("X", "i") and category in CATEGORIES
        if category == "python_function" and is_worker_call(event.get("name")):
            counts["worker_calls", ""] += 1
        else:
            counts[(CATEGORIES[category], "") if known else (category, phase)] += 1
    return counts


def count_in_ledger(ledger: pl.DataFrame) -> Counter[tuple[str, str]]:
    events = ledger.filter(pl.col("unit") == EVENTS, pl.col("effect").is_in([READ, DROPPED]))
    counts: Counter[tuple[str, str]] = Counter()
    for category, phase, count in events.select("category", "phase", "count").iter_rows():
        counts[category, phase] += count
    return counts


def load_events(path: Path) -> tuple[bytes, Events]:
    data = gzip.decompress(path.read_bytes())
    document = json.loads(data, strict=False)
    return data, document if isinstance(document, list) else document["traceEvents"]


@pytest.mark.parametrize("path", [*sorted(SAMPLES.glob("*.json.gz")), *REAL], ids=lambda path: path.name)
def test_read_and_left_out_add_up_to_the_file(path: Path) -> None:
    data, events = load_events(path)
    ledger = read_alike(data, needs_gpu=False).ledger
    assert count_in_ledger(ledger) == count_by_hand(events)
    assert count_events(ledger)[0] == len(events)
    first = ledger.filter(pl.col("effect") == DROPPED).select("category", "phase", "first_event").iter_rows()
    for category, phase, number in first:
        assert (events[number].get("cat") or "", events[number].get("ph", "")) == (category, phase)
    assert set(ledger["severity"]) == {"note"}


@cache
def load_first_events(path: Path) -> Events:
    return load_events(path)[1][:3000]


MUTATIONS: list[tuple[str, object]] = [
    *(("ph", phase) for phase in ("B", "E", "C", "b", "", "long")),
    *(("cat", category) for category in (None, "hpu_op", "kernel", "new \x1b", "é", "x" * 200)),
    *(("ts", time) for time in (0, None, -5, 1e300)),
    *(("dur", time) for time in (0, None, -5, 1e300)),
    ("name", 'quo"ted'),
]


@pytest.mark.parametrize("path", [*sorted(SAMPLES.glob("*inference.json.gz")), *REAL[:4]], ids=lambda path: path.name)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_mutated_traces_add_up_too(path: Path, data: st.DataObject) -> None:
    """Events get other phases, categories and times."""
    events = [*load_first_events(path)]
    rows = st.integers(0, len(events) - 1)
    for row in data.draw(st.lists(rows, max_size=40)):
        key, value = data.draw(st.sampled_from(MUTATIONS))
        events[row] = events[row] | {key: value}
    ledger = read_alike(json.dumps({"traceEvents": events}).encode(), needs_gpu=False).ledger
    assert count_events(ledger)[0] == len(events)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 30), st.binary(max_size=4)), max_size=4))
def test_damaged_files_have_one_ledger(edits: list[tuple[int, int, bytes]]) -> None:
    text = bytearray(json.dumps(json.loads(build(20).to_json()), indent=2).encode())
    for at, cut, new in edits:
        text[at : at + cut] = new
    found = []
    for small_bytes in READERS:
        try:
            found.append(read(bytes(text), small_bytes).ledger.rows())
        except TracekitError as error:
            found.append([str(error)])
    assert found[0] == found[1]


def test_categories_that_may_be_a_devices_work_are_named() -> None:
    builder = build()
    builder.events[3:3] = [{"ph": "X", "cat": "hpu_op", "name": "matmul", "pid": 0, "tid": 7, "ts": 5, "dur": 50}] * 3
    trace = read_alike(builder.to_json())
    assert find_message(trace.warnings, "category-not-read").values["events"] == 3
    [row] = trace.ledger.filter(pl.col("severity") == "warning").iter_rows(named=True)
    assert (row["category"], row["phase"], row["count"], row["first_event"]) == ("hpu_op", "X", 3, 3)
    loaded = load_bytes(builder.to_json(), "test")
    diagnosis = examine(loaded, prepare_run(loaded))
    assert next(check for check in diagnosis.checks if check.name == "events").status != "ok"


def test_what_is_known_to_be_no_devices_work_is_counted_in_a_line() -> None:
    builder = build().python("train.py(1): step", 0, 100).python("train.py(2): loss", 10, 20)
    builder.events.append({"ph": "M", "name": "process_name", "pid": 0, "ts": 0, "args": {}})
    trace = read_alike(builder.to_json())
    assert list_codes(trace.warnings) == list_codes(build().load().rank().warnings)
    assert describe_events(trace.ledger).values == {
        "read": 12,
        "events": 15,
        "left_out": ("2 python_function", "1 metadata"),
    }
    assert count_events(read_alike(builder.to_json(), stacks=True).ledger) == (15, 14)


def split(event: dict[str, Any], *, named: bool = False) -> Events:
    """Return an event as its begin and its end."""
    begin = {key: value for key, value in event.items() if key != "dur"} | {"ph": "B"}
    end = {"ph": "E", "pid": event["pid"], "tid": event["tid"], "ts": event["ts"] + event["dur"]}
    return [begin, end | ({"name": event["name"]} if named else {})]


@pytest.mark.parametrize("named", [False, True])
def test_begin_and_end_are_one_event(named: bool) -> None:
    """All events of a trace as begin and end, nested."""
    builder = build().annotation("outer", -20, 500).annotation("inner", -10, 490)
    whole = builder.load().rank()
    marks = [mark for event in builder.events for mark in split(event, named=named)]
    builder.events = sorted(marks, key=lambda mark: (mark["ts"], mark["ph"] == "B"))
    trace = read_alike(builder.to_json())
    assert all(trace.tables[name].equals(whole.tables[name]) for name in whole.tables)
    assert count_events(trace.ledger) == (len(marks), len(marks))


def test_begins_and_ends_without_counterpart_are_counted() -> None:
    builder = build()
    begin, end = split(builder.events[0])
    builder.events += [begin | {"tid": 5}, end | {"tid": 6}]
    other = split(builder.events[0] | {"tid": 8}, named=True)
    builder.events += [other[0], other[1] | {"name": "another"}]
    trace = read_alike(builder.to_json())
    assert find_message(trace.warnings, "spans-unmatched").values == {"events": 4}
    assert count_events(trace.ledger) == (16, 12)
    assert trace.ops.height == 4


@pytest.mark.parametrize("small_bytes", READERS)
def test_lost_kernels_are_no_missing_gpu(small_bytes: int) -> None:
    def drop_kernels(**fields: Any) -> bytes:
        builder = build()
        builder.events = [
            e | fields if e["cat"] == "kernel" else e for e in builder.events if e["cat"] != "cuda_runtime"
        ]
        return builder.to_json()

    cases: list[tuple[dict[str, Any], str]] = [
        ({"ts": 0, "dur": 0}, "events-without-times"),
        ({"cat": "hpu_op"}, "trace-of-other-device"),
        ({"cat": None}, "trace-of-other-device"),
    ]
    for fields, code in cases:
        with pytest.raises(NoGpuActivityError, check=has_code(code)):
            read(drop_kernels(**fields), small_bytes)


def test_many_kinds_are_counted_together() -> None:
    builder = build()
    builder.events += [{"ph": "X", "cat": f"kind {i}", "name": "x", "ts": 1, "dur": 1} for i in range(3000)]
    trace = read_alike(builder.to_json())
    unread = trace.ledger.filter(pl.col("kind") == "category-not-read")
    assert unread.height == MAX_EVENT_KINDS + 1
    assert unread["count"].sum() == 3000
    assert len(str(find_message(trace.warnings, "category-not-read"))) < 300
