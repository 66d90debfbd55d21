"""Damaged files: what can be read is read, what can't is counted."""

import io
import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracekit
from tests.codes import find_message, has_code, list_codes
from tracekit.errors import DamagedTraceError, NotATraceError, TracekitError
from tracekit.ingest import load_bytes
from tracekit.ingest.decode import decode
from tracekit.messages.traces import EVENTS_LOST, EVENTS_REPAIRED
from tracekit.testing import TraceBuilder


def builder(kernels=20):
    built = TraceBuilder()
    for i in range(kernels):
        built.op("aten::mm", 100 * i, 30, dims=[[64, 32], [32, 16 + i]], types=["float", "float"])
        built.kernel(f"gemm_{i}", 100 * i + 20, 50, launch=100 * i + 5, grid=[8, 1, 1], block=[256, 1, 1])
    return built


GOOD = builder().to_json()
PRETTY = json.dumps(json.loads(GOOD), indent=2).encode()


def kernels_of(data, small_bytes=0):
    trace = decode(io.BytesIO(data), "test", small_bytes=small_bytes)
    return trace.activities["name"].to_list(), trace.warnings


REPAIRED = {
    "control character": (b"gemm_7", b"gem\x01m_7", "gem m_7"),
    "newline in a name": (b"gemm_7", b"gemm\n7", "gemm 7"),
    "lone backslash": (b"gemm_7", rb"C:\gemm\7", r"C:\gemm\7"),
    "broken utf-8": (b"gemm_7", b"gemm\xff7", "gemm�7"),
    "unescaped quotes": (b"gemm_7", b'ge"m"m_7', 'ge"m"m_7'),
    "not a number": (b'"grid": [8, 1, 1]', b'"grid": [8, 1, 1], "occupancy": nan', "gemm_7"),
    "minus infinity": (b'"grid": [8, 1, 1]', b'"grid": [8, 1, 1], "occupancy": -inf', "gemm_7"),
    "comma too many": (b'"grid": [8, 1, 1]', b'"grid": [8, 1, 1,]', "gemm_7"),
}


@pytest.mark.parametrize("text", [GOOD, PRETTY], ids=["one line", "pretty"])
@pytest.mark.parametrize("case", REPAIRED)
def test_what_profilers_get_wrong_is_put_right(case, text):
    old, new, name = REPAIRED[case]
    text = json.dumps(json.loads(text)).encode() if b"grid" in old else text
    at = text.index(b"gemm_7")
    start = text.index(old, at)
    names, warnings = kernels_of(text[:start] + new + text[start + len(old) :])
    assert len(names) == 20
    assert names[7] == name
    assert EVENTS_REPAIRED(repaired=1, events=60) in warnings


NAMES = ['{"device": "cpu", "dtype": "float32"}(12): run', r"C:\lib\lua.py(3): f", "a\x01b", '"', 'x": "y']


def write_as_kineto(name: str, category: str) -> bytes:
    """The event with a name that isn't escaped, as libkineto writes it."""
    head = f'{{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": 100, "tid": 100,\n'
    return (head + '    "ts": 1.0, "dur": 3.0,\n    "args": {\n      "External id": 9\n    }\n  }').encode()


@pytest.mark.parametrize("name", NAMES)
def test_names_that_kineto_doesnt_escape_are_read_as_they_are(name):
    at = PRETTY.index(b"{", PRETTY.index(b"traceEvents"))
    damaged = PRETTY[:at] + write_as_kineto(name, "cpu_op") + b",\n  " + PRETTY[at:]
    trace = decode(io.BytesIO(damaged), "test", small_bytes=0)
    assert trace.ops.height == 21
    [found] = trace.ops.filter(pl.col("name") != "aten::mm")["name"].to_list()
    assert found.replace("\\", "") == name.replace("\x01", " ").replace("\\", "")
    assert "events-repaired" in list_codes(trace.warnings)


def test_damage_of_events_that_arent_read_costs_nothing():
    at = PRETTY.index(b"{", PRETTY.index(b"traceEvents"))
    frames = b",\n  ".join(write_as_kineto(name, "python_function") for name in NAMES)
    trace = decode(io.BytesIO(PRETTY[:at] + frames + b",\n  " + PRETTY[at:]), "test", small_bytes=0)
    assert trace.activities.height == 20
    assert not any(code.startswith("events-") for code in list_codes(trace.warnings))


@pytest.mark.parametrize("text", [GOOD, PRETTY], ids=["one line", "pretty"])
def test_a_lost_event_is_counted_with_its_place(text):
    at = text.index(b"gemm_7")
    start = text.rindex(b"{", 0, at)
    names, warnings = kernels_of(text[: at + 3] + text[at + 60 :])
    assert [f"gemm_{i}" for i in range(20) if i != 7] == names
    assert EVENTS_LOST(lost=1, events=60, offset=start) in warnings


def test_garbage_between_events_costs_no_event():
    at = GOOD.index(b'{"ph": "X", "cat": "kernel", "name": "gemm_7"')
    names, warnings = kernels_of(GOOD[:at] + b"]]}}," + GOOD[at:])
    assert len(names) >= 7
    assert warnings


def test_a_file_that_only_lacks_its_end_is_read():
    names, warnings = kernels_of(GOOD[:-1])
    assert len(names) == 20
    assert "events-cut" in list_codes(warnings)


def test_a_file_cut_amid_its_kernels_is_refused():
    events = sorted(builder().events, key=lambda event: event["cat"] == "kernel")
    whole = builder()
    whole.events = events
    text = whole.to_json()
    with pytest.raises(DamagedTraceError, check=has_code("file-cut-short")):
        load_bytes(text[: text.index(b"gemm_12")], "cut")


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
def test_a_byte_order_mark_is_no_part_of_the_json(small_bytes):
    assert kernels_of(b"\xef\xbb\xbf" + GOOD, small_bytes)[0] == kernels_of(GOOD)[0]
    for encoding in ("utf-16", "utf-16-be"):
        text = GOOD.decode().encode(encoding)
        text = text if encoding == "utf-16" else b"\xfe\xff" + text
        with pytest.raises(NotATraceError, check=has_code("file-in-utf16")):
            kernels_of(text, small_bytes)


def changed(category, **fields):
    """The good trace with something else in all its events of a category."""
    document = json.loads(GOOD)
    for event in document["traceEvents"]:
        if event["cat"] == category:
            event.update(fields)
    return json.dumps(document).encode()


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
@pytest.mark.parametrize("fields", [{"ts": "soon"}, {"tid": {}}, {"args": []}])
def test_a_file_whose_kernels_are_damaged_is_refused(fields, small_bytes):
    with pytest.raises(DamagedTraceError, check=has_code("launches-without-kernels")) as caught:
        kernels_of(changed("kernel", **fields), small_bytes)
    counts = caught.value.catalogue_message.values
    assert (counts["missing"], counts["launches"], counts["lost"]) == (20, 20, 20)


def test_lost_events_of_other_kinds_and_few_kernels_are_no_reason_to_refuse():
    names, warnings = kernels_of(changed("cpu_op", args=[]))
    assert len(names) == 20
    lost = find_message(warnings, "events-lost").values
    assert (lost["lost"], lost["events"]) == (20, 60)
    few = json.loads(builder(200).to_json())
    for event in [event for event in few["traceEvents"] if event["cat"] == "kernel"][:4]:
        event["tid"] = {}
    assert len(kernels_of(json.dumps(few).encode())[0]) == 196


@pytest.mark.parametrize("text", [GOOD[:3000], PRETTY[:3000]], ids=["one line", "pretty"])
def test_cut_at_any_byte_never_crashes(text):
    """Nor is it taken for whole; behind the first kernels there is something to read, and all that is read is said."""
    read = {0: 0, 1 << 20: 0}
    for length in range(0, len(text), 37):
        for small_bytes in read:
            try:
                found = decode(io.BytesIO(text[:length]), "cut", small_bytes=small_bytes)
            except TracekitError:
                continue
            read[small_bytes] += 1
            assert "cut" in "".join(list_codes(found.warnings))
    assert min(read.values()) > len(text) / 37 / 4


def test_metadata_that_is_damaged_is_said():
    names, warnings = kernels_of(GOOD.replace(b'"schemaVersion": 1', b'"schemaVersion": C:\\x'))
    assert len(names) == 20
    assert "metadata-lost" in list_codes(warnings)


def test_a_trace_larger_than_its_memory_is_refused():
    with pytest.raises(tracekit.TracekitError, check=has_code("trace-too-large")):
        decode(io.BytesIO(GOOD), "large", memory_bytes=1000, small_bytes=0)


SPICE = st.sampled_from(
    [
        *(bytes([byte]) for byte in b'"\\{}[],:-'), b"nan", b"1e5", b"1e999999999", b"\x00", b"\n", b"\xff", b"null",
        b"01", b"0.0005", b'"stream 7"', b'"NaN"', b"9" * 30, b'{"ph": "X"', b"\\u00e9", "é".encode(),
    ]
)  # fmt: skip
EDITS = st.lists(
    st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 30), SPICE | st.binary(max_size=4)), max_size=4
)


@settings(max_examples=60, deadline=None)
@given(EDITS, st.booleans())
def test_both_decoders_read_damaged_files_alike(edits, pretty):
    text = bytearray(PRETTY if pretty else GOOD)
    for at, cut, new in edits:
        text[at : at + cut] = new
    results = []
    for small_bytes in (0, 1 << 20):
        try:
            trace = decode(io.BytesIO(bytes(text)), "mutated", small_bytes=small_bytes)
            results.append((trace.tables, trace.device, trace.rank))
        except TracekitError as error:
            results.append(str(error))
    fast, careful = results
    if isinstance(fast, str) or isinstance(careful, str):
        assert fast == careful
        return
    assert fast[1:] == careful[1:]
    assert all(fast[0][name].equals(careful[0][name]) for name in fast[0])


@pytest.mark.parametrize(
    ("event", "is_read"),
    [
        ('"ph": "i", "ts": 4', True),
        ('"ph": "i", "ts": 4, "dur": null', True),
        ('"dur": null, "ph": "i", "ts": 4', True),
        ('"ph": "X", "ph": "i", "ts": 4', True),
        ('"ph": "i", "ph": "X", "ts": 4', False),
        ('"ph": "X", "ts": 4, "dur": null', False),
        ('"ph": "i", "dur": 3', False),
    ],
)
def test_only_an_instant_has_no_duration(event, is_read):
    text = f'{{"traceEvents": [{{{event}, "cat": "kernel", "name": "instant"}}, '.encode()
    text = GOOD.replace(GOOD[: GOOD.index(b"[", GOOD.index(b"traceEvents")) + 1], text, 1)
    for small_bytes in (0, 1 << 20):
        names, warnings = kernels_of(text, small_bytes)
        assert ("instant" in names) == is_read
        assert ("events-untimed" in list_codes(warnings)) != is_read


@pytest.mark.parametrize("megabytes", [17, 20, 40])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_event_that_is_too_long_counts_once(place, megabytes):
    builder = TraceBuilder()
    for number in range(3):
        builder.kernel("x" * (megabytes << 20) if number == place else "gemm", 10 * number, 5)
    rank = builder.load().rank()
    assert rank.activities["name"].to_list() == ["gemm", "gemm"]
    lost = find_message(rank.warnings, "events-lost").values
    assert (lost["lost"], lost["events"]) == (1, 3)
