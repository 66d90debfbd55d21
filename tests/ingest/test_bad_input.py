"""Bad input gets one clear line that says what, where and what to try."""

import bz2
import codecs
import gzip
import io
import lzma
import tarfile

import pytest

import tracekit
from tests.codes import has_code
from tracekit.errors import DamagedTraceError, NoGpuActivityError, NotATraceError, TraceNotFoundError
from tracekit.messages.traces import EVENTS_DISTANT, OP_INPUTS_MALFORMED
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

GOOD = TraceBuilder().op("aten::mm", 0, 30).kernel("gemm", 20, 100, launch=10).to_json()


def packed() -> bytes:
    """``GOOD`` in a compressed tar archive."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo("trace.json")
        member.size = len(GOOD)
        archive.addfile(member, io.BytesIO(GOOD))
    return file.getvalue()


CASES = {
    "tar": (packed(), NotATraceError, "file-is-tar"),
    "gzip in gzip": (gzip.compress(gzip.compress(GOOD)), NotATraceError, "file-compressed-twice"),
    "zip in gzip": (gzip.compress(b"PK\3\4" + bytes(100)), NotATraceError, "file-compressed-twice"),
    "gzip of nothing": (gzip.compress(b""), NotATraceError, "file-empty-unpacked"),
    "bzip2": (bz2.compress(GOOD), NotATraceError, "compression-unknown"),
    "xz": (lzma.compress(GOOD), NotATraceError, "compression-unknown"),
    "HTML": (b"\n<!DOCTYPE html><html><body>404</body></html>", NotATraceError, "file-is-web-page"),
    "HTML behind a mark": (codecs.BOM_UTF8 + b"<html></html>", NotATraceError, "file-is-web-page"),
    "LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\n", NotATraceError, "file-is-lfs-pointer"),
    "pickle": (b"\x80\x04\x95" + bytes(100), NotATraceError, "trace-of-other-tool"),
    "UTF-16": (GOOD.decode().encode("utf-16"), NotATraceError, "file-in-utf16"),
    "empty": (b"", DamagedTraceError, "file-empty"),
    "truncated": (GOOD[: len(GOOD) // 2], DamagedTraceError, "file-cut-short"),
    "nested bomb": (b"[" * 100_000, DamagedTraceError, "file-cut-short"),
    "nested bomb in one key": (b'{"' * 100_000, DamagedTraceError, "json-invalid"),
    "only blanks": (b" " * 100_000, NotATraceError, "json-not-an-object"),
    "zeros": (bytes(1_000_000), NotATraceError, "json-not-an-object"),
    "plain text": (b"hello world", NotATraceError, "json-not-an-object"),
    "binary": (bytes(range(1, 200)), NotATraceError, "json-not-an-object"),
    "other JSON": (b'{"nodes": [1, 2]}', NotATraceError, "json-without-events"),
    "a number": (b"42", NotATraceError, "json-not-an-object"),
    "nested deep in an event": (b'{"traceEvents": [{"args": ' + b"[" * 100_000, DamagedTraceError, "file-cut-short"),
    "nested deep in an unknown key": (b'{"x": ' + b"[" * 100_000, DamagedTraceError, "json-invalid"),
    "absurd base": (GOOD.replace(b"1700000000000000000", b"1" + b"0" * 30), NotATraceError, "time-base-absurd"),
    "no events": (b'{"traceEvents": []}', NoGpuActivityError, "trace-empty"),
    "cut gzip": (gzip.compress(GOOD)[: len(GOOD) // 4], DamagedTraceError, "file-damaged"),
    "corrupt gzip": (gzip.compress(GOOD)[:30] + b"\0" * 40, DamagedTraceError, "file-damaged"),
}


@pytest.mark.parametrize("case", CASES)
def test_damage_is_named(case, tmp_path):
    data, error, code = CASES[case]
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    with pytest.raises(error, check=has_code(code)) as caught:
        tracekit.load(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message


BINARY = {
    "profile.nsys-rep": "Nsight Systems",
    "profile.qdrep": "Nsight Systems",
    "gemm.ncu-rep": "Nsight Compute",
    "merged.etl": "Windows' event tracing",
    "events.out.tfevents.1700000000.host.1.0": "TensorBoard",
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_files_of_other_tools_are_told_by_their_names(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(bytes(range(1, 200)))
    with pytest.raises(NotATraceError, check=has_code("trace-of-other-tool")) as caught:
        tracekit.load(path)
    assert caught.value.catalogue_message.values["tool"] == BINARY[name]
    path.write_bytes(GOOD)
    assert tracekit.load(path).ranks


@pytest.mark.parametrize("name", ["host.xplane.pb", "trace.pftrace", "rank.0.et"])
def test_formats_known_by_their_names_may_hold_a_trace_of_pytorch(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(bytes(range(1, 200)))
    with pytest.raises(DamagedTraceError, check=has_code("format-damaged")):
        tracekit.load(path)
    path.write_bytes(GOOD)
    assert tracekit.load(path).ranks


def test_missing_file(tmp_path):
    with pytest.raises(TraceNotFoundError, check=has_code("file-not-found")):
        tracekit.load(tmp_path / "nothing.json")


def test_an_empty_name_is_not_the_directory_one_is_in(tmp_path, monkeypatch):
    (tmp_path / "trace.json").write_bytes(GOOD)
    monkeypatch.chdir(tmp_path)
    assert tracekit.load(".").ranks
    with pytest.raises(TraceNotFoundError, check=has_code("trace-name-empty")):
        tracekit.load("")


@pytest.mark.parametrize("microseconds", [-1.7e15, 1e14])
def test_an_event_of_another_year_is_left_out_and_said(microseconds):
    builder = TraceBuilder().op("aten::mm", 0, 10).op("aten::mm", 12, 10).op("aten::mm", 24, 10)
    builder.op("aten::odd", microseconds, 10)
    trace = builder.kernel("gemm", 20, 40, launch=2).load()
    assert "aten::odd" not in trace.rank().ops["name"]
    assert EVENTS_DISTANT(events=1) in trace.rank().warnings
    assert tracekit.report(trace).source.step_time_us < 100


def test_a_mistyped_name_is_met_by_those_like_it(tmp_path):
    (tmp_path / "resnet_rank0.json.gz").write_bytes(gzip.compress(GOOD))
    with pytest.raises(TraceNotFoundError, match="resnet_rank0", check=has_code("file-name-mistyped")):
        tracekit.load(tmp_path / "resnet_rnk0.json.gz")


def test_directory(tmp_path):
    with pytest.raises(TraceNotFoundError, check=has_code("traces-not-found")):
        tracekit.load(tmp_path)


def test_cpu_only_trace_says_which_option_is_missing():
    with pytest.raises(NoGpuActivityError, check=has_code("trace-without-gpu")):
        TraceBuilder().op("aten::mm", 0, 30).load()


def test_traces_merged_into_one_file_are_refused_and_beside_their_parts_left_out(tmp_path):
    merged = TraceBuilder().kernel("gemm", 20, 10, launch=0).kernel("gemm", 30, 10, launch=5)
    for event, process in zip(merged.events, (100, 100, 200, 200), strict=True):
        if event["cat"] == "cuda_runtime":
            event["pid"] = process
    with pytest.raises(NotATraceError, check=has_code("traces-merged")):
        merged.load()
    merged.metadata = {"distributedInfo": {"rank": 0, "world_size": 2}}
    merged.save(tmp_path / "merged.json")
    for rank in range(2):
        TraceBuilder().kernel("gemm", 20, 10, launch=0).save(tmp_path / f"trace_rank{rank}.json")
    assert [rank.rank for rank in tracekit.load(tmp_path).ranks] == [0, 1]
    for chosen, found in (("lowest", 0), ([0], 0), ([1], 1)):
        assert [rank.rank for rank in tracekit.load(tmp_path, ranks=chosen).ranks] == [found]


def test_a_kernel_without_anything_on_the_cpu_gets_a_report():
    trace = TraceBuilder().kernel("gemm", 20, 10).load()
    assert tracekit.report(trace).source.kernels == 1
    for rank in ({"rank": -1, "world_size": -4}, {"rank": 0, "world_size": 0}):
        builder = TraceBuilder().kernel("gemm", 20, 10, launch=0)
        builder.metadata["distributedInfo"] = rank
        assert tracekit.predict(builder.load(), gpu="h100-sxm")["h100-sxm"].step.steps == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Input type", "['float', 'float']"),
        ("Input type", [1, 2]),
        ("Input Dims", [["a"], [4]]),
        ("Input Dims", "unknown"),
        ("Input Dims", [[2**40, 2**40], [8, 8]]),
        ("Input Dims", [[0, 2**70], [8, 8]]),
        ("Input Dims", [[8, [8]], [8, 8]]),
        ("Input Dims", [[[[8, 8]]], [8, 8]]),
        ("Input Dims", [[-8, 8], [8, 8]]),
        ("Input Dims", [[True, 8], [8, 8]]),
        ("Input Strides", {"0": 1}),
        ("Concrete Inputs", [["1"]]),
    ],
)
def test_inputs_in_another_form_are_left_out_and_said(key, value):
    inputs = {"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]} | {key: value}
    builder = TraceBuilder().op("aten::mm", 0, 10, **inputs)
    run = prepare_run(builder.kernel("gemm", 20, 40, launch=2).load())
    assert run.kernels.select("input_dims", "m").row(0) == (None, None)
    assert OP_INPUTS_MALFORMED(ops=1) in run.trace.warnings
