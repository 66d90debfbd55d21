"""Files that other programs changed on their way: times, wrappers, numbers, ends; times in microseconds."""

import gzip
import io
import json
from typing import Any

import pytest

from tests.codes import find_message, has_code, list_codes
from tracekit.errors import DamagedTraceError, NotATraceError, TracekitError
from tracekit.ingest import load, load_bytes
from tracekit.ingest.decode import decode
from tracekit.run import prepare_run
from tracekit.testing import BASE_NS, TraceBuilder
from tracekit.trace import RankTrace
from tracekit.workload.steps import find_steps

SMALL = 1 << 20
BOTH = pytest.mark.parametrize("small_bytes", [0, SMALL], ids=["scanner", "careful"])


def job(steps: int = 4) -> TraceBuilder:
    """Steps of 1000 with four kernels of 200 each, and a wait for them."""
    builder = TraceBuilder()
    for step in range(steps):
        at = 1000.0 * step
        builder.step(step, at, 990)
        for place in range(4):
            builder.op("aten::mm", at + 10 + 20 * place, 15)
            builder.kernel("gemm", at + 30 + 210 * place, 200, launch=at + 12 + 20 * place)
        builder.call("cudaDeviceSynchronize", at + 100, 770)
    return builder


def read(text: bytes, small_bytes: int = SMALL) -> RankTrace:
    return decode(io.BytesIO(text), "test", small_bytes=small_bytes)


def write(document: Any) -> bytes:
    return json.dumps(document).encode()


GOOD = read(job().to_json())


def is_like_good(rank: RankTrace) -> bool:
    return all(rank.tables[name].equals(GOOD.tables[name]) for name in GOOD.tables)


def make_absolute(document: dict[str, Any], categories: tuple[str, ...] = ()) -> bytes:
    for event in document["traceEvents"]:
        if not categories or event["cat"] in categories:
            event["ts"] = int(event["ts"]) + BASE_NS // 1000
    return write(document)


@BOTH
@pytest.mark.parametrize("categories", [(), ("kernel",), ("cpu_op", "cuda_runtime", "user_annotation")])
def test_a_base_is_not_added_to_times_that_have_it(categories: tuple[str, ...], small_bytes: int) -> None:
    rank = read(make_absolute(job().to_dict(), categories), small_bytes)
    assert is_like_good(rank)
    counted = 52 if not categories else 16 if categories == ("kernel",) else 40
    assert find_message(rank.warnings, "times-absolute").values["events"] == (56 if not categories else counted)


def test_a_small_base_is_added_to_all_times() -> None:
    builder = job()
    builder.base_ns = 5_000
    assert read(builder.to_json()).ops["ts_ns"][0] == 15_000


DOCUMENT = job().to_dict()
WRAPPED = {
    "in itself": {**DOCUMENT, "traceEvents": {"traceEvents": DOCUMENT["traceEvents"]}},
    "twice": {**DOCUMENT, "traceEvents": {"traceEvents": {"traceEvents": DOCUMENT["traceEvents"]}}},
    "under a key": {"status": "ok", "data": DOCUMENT},
    "deeper": {"result": {"trace": DOCUMENT}},
    "text under a key": {"status": "ok", "trace": json.dumps(DOCUMENT)},
    "text": json.dumps(DOCUMENT),
    "in a list": [{"data": DOCUMENT}],
}


@BOTH
@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_events_are_read(name: str, small_bytes: int) -> None:
    rank = read(write(WRAPPED[name]), small_bytes)
    assert is_like_good(rank)
    assert rank.device == GOOD.device
    assert rank.warnings == GOOD.warnings


@BOTH
@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"traceEvents": {"x": []}}, "json-events-not-a-list"),
        ({"traceEvents": 7}, "json-events-not-a-list"),
        ({"data": {"traceEvents": {}}}, "json-events-not-a-list"),
        ({"data": {"a": 1}}, "json-without-events"),
        ("traceEvents", "json-not-an-object"),
        ("text", "json-not-an-object"),
    ],
)
def test_what_holds_no_list_of_events_is_refused(document: Any, code: str, small_bytes: int) -> None:
    with pytest.raises(NotATraceError, check=has_code(code)):
        read(write(document), small_bytes)


def test_wrappers_without_end_are_refused() -> None:
    document: Any = DOCUMENT
    for _ in range(50):
        document = {"data": document}
    with pytest.raises(TracekitError):
        read(write(document))


@BOTH
@pytest.mark.parametrize(("old", "new"), [('"ts": 1030.0', '"ts": 1030,0'), ('"dur": 200,', '"dur": 200,5,')])
def test_decimal_commas_are_named_with_their_number_and_place(old: str, new: str, small_bytes: int) -> None:
    """One is a lost event; where all kernels have them the file is refused."""
    text = job().to_json().decode()
    one = text.replace(old, new, 1)
    assert find_message(read(one.encode(), small_bytes).warnings, "events-lost").values["lost"] == 1
    everywhere = text.replace(".0,", ",0,").encode()
    with pytest.raises(DamagedTraceError, check=has_code("numbers-with-commas")) as caught:
        read(everywhere, small_bytes)
    values = caught.value.catalogue_message.values
    assert (values["lost"], values["events"], values["example"]) == (56, 56, "0,0")
    assert values["offset"] == everywhere.index(b'{"ph"')


@BOTH
def test_events_of_which_none_can_be_read_are_counted(small_bytes: int) -> None:
    text = job().to_json().replace(b'"ts": ', b'"ts": ~')
    with pytest.raises(DamagedTraceError, check=has_code("events-unreadable")) as caught:
        read(text, small_bytes)
    assert caught.value.catalogue_message.values["lost"] == 56


def test_rocprofs_old_json_names_the_new_one() -> None:
    args = {"BeginNs": "213757592856000", "EndNs": "213757593406000", "dev-id": "0", "queue-id": "0"}
    event = {"ph": "X", "name": "Cijk_Ailk_Bljk", "pid": 6, "tid": 0, "ts": "213757592856", "dur": "550", "args": args}
    with pytest.raises(NotATraceError, check=has_code("trace-of-rocprof-v1")) as caught:
        load_bytes(write({"traceEvents": [event] * 3}), "test")
    assert "rocprofv3" in str(caught.value)


def test_a_range_without_a_thread_leaves_the_others() -> None:
    builder = job()
    next(event for event in builder.events if event["name"] == "ProfilerStep#0")["pid"] = "python"
    rank = read(builder.to_json())
    assert find_steps(rank)["step"].to_list() == [1, 2, 3]
    assert find_message(rank.warnings, "ranges-without-thread").values["ranges"] == 1


def order_as_kineto(event: dict[str, Any]) -> int:
    return ["user_annotation", "cpu_op", "cuda_runtime", "kernel"].index(event["cat"])


def order_by_time(event: dict[str, Any]) -> float:
    return float(event["ts"])


HEAVY_ORDERS = [pytest.param(order, marks=pytest.mark.heavy) for order in (None, order_by_time)]


@pytest.mark.parametrize("order", [order_as_kineto, *HEAVY_ORDERS])
def test_of_a_file_cut_anywhere_only_whole_steps_are_measured(order: Any) -> None:
    """Each step has 800 of kernels; with one kernel less the file is refused or the step is left out."""
    builder = job()
    if order is not None:
        builder.events.sort(key=order)
    text, read_in_part = builder.to_json(), 0
    for length in range(1000, len(text) - 60, 97):
        try:
            run = prepare_run(load_bytes(text[:length], "cut"))
        except DamagedTraceError:
            continue
        assert run.measured_step.kernel_time_us == 800
        assert "events-cut" in list_codes(run.trace.warnings)
        read_in_part += "steps-cut" in list_codes(run.trace.warnings)
    assert read_in_part > 10


def test_of_steps_with_one_number_only_the_cut_one_is_left_out() -> None:
    builder = job()
    for event in builder.events:
        event["name"] = event["name"].replace("ProfilerStep#3", "ProfilerStep#1")
    text = builder.to_json()
    at = text.rindex(b'{"ph": "X", "cat": "cpu_op"')
    found = find_steps(load_bytes(text[: at - 2], "cut").rank())
    assert found.height == 3
    assert set(((found["end_ns"] - found["start_ns"]) // 1000).to_list()) == {990}


def test_compressed_data_that_ends_early_is_read_as_plain_text_that_does(tmp_path: Any) -> None:
    text = job(200).to_json()
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(text)[: len(gzip.compress(text)) // 2])
    run = prepare_run(load(tmp_path / "cut.json.gz", cache=False))
    assert run.measured_step.kernel_time_us == 800
    assert {"compressed-data-cut", "events-cut", "steps-cut"} <= set(list_codes(run.trace.warnings))
