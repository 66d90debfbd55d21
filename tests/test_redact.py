"""A redacted trace says nothing about whose it is, and predicts the same."""

import gzip
import io
import json
import shutil
import sys
import time
import zipfile
from pathlib import Path

import fsspec
import pytest

import tracekit as tk
from tests.codes import has_code
from tests.ingest.formats import nsight_files
from tracekit.errors import DamagedTraceError, NotATraceError, OutputError, TraceError, TraceNotFoundError
from tracekit.redact import files, redact
from tracekit.redact.redactor import RedactionPatterns, find_private_names
from tracekit.testing import TraceBuilder

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TOKEN = "ghp_" + "a1" * 18
TELLING = ("alice", "gpu-node-17", "secret-project", "corp.example", TOKEN, "hunter22", "train.py", "Transformer_0")
DIMS = [[512, 512], [512, 512]]


def event(builder, **fields):
    builder.events.append({"pid": 100, "tid": 100, "ts": 1, "dur": 1} | fields)
    return builder


@pytest.fixture
def builder():
    """A trace with something telling in every place that can hold text."""
    builder = TraceBuilder().step(1, 0, 200)
    builder.metadata |= {
        "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 4},
        "host_name": "gpu-node-17.corp.example",
        "username": "alice",
        "DB_PASSWORD": "hunter22",
        "INFO": ["started by alice"],
        "with_stack": 1,
        "cuda_runtime_version": 12040,
        "tracekit": {
            "unprofiled_step_us": [180.0, 190.0, 200.0],
            "memory": {"peak_allocated_bytes": 9 * 10**9, "peak_reserved_bytes": 10**10},
            "software": {"variables": {"NCCL_ALGO": "Ring", "PYTORCH_CUDA_ALLOC_CONF": "/home/alice/x"}},
        },
    }
    builder.op("aten::mm", 5, 30, dims=DIMS, types=["float", "float"], concrete=["", "/home/alice/weights.pt"])
    builder.op("mylib::load /data/secret-project/x", 40, 10, **{"Call stack": "train.py(3): main;model.py(7): f"})
    builder.op("triton_mm", 52, 5, kernel_file="/tmp/alice/abc.py", kernel_hash="c0ffee")
    builder.op("aten::linear", 60, 5, **{"Module Hierarchy": "Transformer_0"}, note=f"key {TOKEN}")
    builder.annotation("save to s3://corp.example/secret-project", 70, 5).annotation("on gpu-node-17", 75, 5)
    builder.annotation("mail alice@corp.example", 80, 5).annotation(r"C:\Users\alice", 85, 5).annotation("epoch", 85, 1)
    builder.kernel("ampere_sgemm_128x64_nn", 20, 100, launch=10, module_fqn="secret.wq")
    builder.kernel("void my_kernel<float>(int)", 125, 9, launch=62)
    event(builder, ph="X", cat="python_function", name="train.py(3): main", args={"Python id": 1})
    event(builder, ph="M", name="process_name", args={"name": "secret-project trainer"})
    event(builder, ph="M", name="process_labels", args={"labels": "GPU 0"})
    return event(builder, ph="M", name="thread_name", args={"name": "thread 100 (secret-project)"})


@pytest.fixture
def redacted(builder, tmp_path):
    """The text of the redacted trace."""
    redact(builder.save(tmp_path / "trace.json"), tmp_path / "out.json")
    return (tmp_path / "out.json").read_text()


@pytest.mark.parametrize("telling", TELLING)
def test_nothing_telling_is_left(redacted, telling):
    assert telling not in redacted


def test_what_predictions_need_is_kept(redacted, builder):
    document = json.loads(redacted)
    for key in ("deviceProperties", "distributedInfo", "baseTimeNanoseconds", "with_stack", "cuda_runtime_version"):
        assert document[key] == json.loads(builder.to_json())[key]
    events = document["traceEvents"]
    names = {event["name"] for event in events}
    assert names >= {"aten::mm", "ProfilerStep#1", "epoch", "ampere_sgemm_128x64_nn", "void my_kernel<float>(int)"}
    assert "mylib::load redacted" in names  # of code's names only the telling part goes
    product = next(event for event in events if event["name"] == "aten::mm")
    assert product["args"]["Input Dims"] == DIMS
    assert product["args"]["Concrete Inputs"] == ["", "redacted"]
    tracks = [event["args"] for event in events if event["ph"] == "M"]
    assert tracks == [{"name": "redacted"}, {"labels": "GPU 0"}, {"name": "thread 100"}]


def same_predictions(before, after):
    for name, target in tk.predict(tk.load(before), gpu=["h100-sxm", "t4", "mi300x"]).items():
        other = tk.predict(tk.load(after), gpu=name)[name]
        assert (target.step, target.low_us, target.high_us) == (other.step, other.low_us, other.high_us)
        assert target.coverage == other.coverage
        assert target.memory == other.memory


def test_predictions_stay_the_same(builder, tmp_path):
    before, after = builder.save(tmp_path / "trace.json.gz"), tmp_path / "out.json.gz"
    redact(before, after)
    same_predictions(before, after)


REAL = ("h100_vit_inference", "v100_dlrm_train_rank0_of_8", "mi210_gpu_only", "hta_critical_path_alexnet")


@pytest.mark.heavy
@pytest.mark.parametrize("name", REAL)
def test_predictions_of_real_traces_stay_the_same(real_traces, tmp_path, name):
    # A copy, away from the execution trace that lies beside some.
    before, after = tmp_path / "trace.json.gz", tmp_path / "out.json.gz"
    shutil.copy(real_traces / f"{name}.json.gz", before)
    redact(before, after)
    same_predictions(before, after)


def test_what_the_recorder_noted_is_kept(builder, tmp_path):
    redact(builder.save(tmp_path / "trace.json"), tmp_path / "out.json")
    rank = tk.load(tmp_path / "out.json").rank()
    assert rank.unprofiled_step_us == 190
    assert rank.peak_memory_bytes == (9e9, 1e10)
    assert rank.recorded_facts["software"] == {
        "variables": {"NCCL_ALGO": "Ring", "PYTORCH_CUDA_ALLOC_CONF": "redacted"}
    }


def test_what_was_removed_is_counted(builder, tmp_path):
    removed = redact(builder.save(tmp_path / "trace.json"), tmp_path / "out.json")
    assert removed.metadata == ["host_name", "username", "DB_PASSWORD", "INFO"]
    assert removed.events == 1
    assert removed.arguments == {"Call stack": 1, "kernel_file": 1, "Module Hierarchy": 1, "module_fqn": 1}
    assert removed.texts == {
        "a path": 4, "an address": 2, "the name of a host or user": 1, "a GitHub token": 1, "the name of a process": 1,
    }  # fmt: skip


def test_times_keep_every_digit(tmp_path):
    """Times of 19 digits, as PyTorch 2.3 writes them, don't fit into a double."""
    (tmp_path / "in.json").write_text('[{"ph":"X","cat":"cpu_op","name":"a","ts":1712345678901234.567,"dur":1.10}]')
    redact(tmp_path / "in.json", tmp_path / "out.json")
    text = (tmp_path / "out.json").read_text()
    assert '"ts":1712345678901234.567,"dur":1.10' in text
    assert isinstance(json.loads(text), list)


def test_common_words_are_no_names(tmp_path):
    builder = TraceBuilder().op("aten::mm", 0, 5).kernel("tree root kernel", 1, 5, launch=0)
    builder.metadata["username"] = "root"
    redact(builder.save(tmp_path / "in.json"), tmp_path / "out.json")
    assert "tree root kernel" in (tmp_path / "out.json").read_text()


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        ({"host_name": "gpu7.lab.example"}, {"gpu7.lab.example", "gpu7"}),
        ({"nested": {"user": "bob"}}, {"bob"}),
        ({"user": "al"}, set()),  # of two letters: words of other meanings
        ({"username": "Root", "hostname": "localhost", "login": "node"}, set()),
        ({"where": "/home/carol/run", "mac": "/Users/dave/x", "win": "D:\\Users\\erin"}, {"carol", "dave", "erin"}),
        ({"user_names_kept": "fred", "superuser": "gina"}, set()),
    ],
)
def test_names_are_those_of_hosts_users_and_home_directories(metadata, names):
    assert find_private_names(metadata) == names


def test_whole_words_alone_are_names_and_longer_ones_go_first():
    patterns = RedactionPatterns(["ann", "ann.lab"])
    assert patterns.redact_parts("by ann.lab, ann and anna") == "by redacted, redacted and anna"
    assert patterns.kind("anna") is None
    assert patterns.kind("to_ann_9") == "the name of a host or user"
    assert patterns.kind("x.py:3") == "a path"


LONG = {
    "words": "a" * 200_000,
    "parts": "a." * 100_000,
    "dashes": "eyJaaaaaaaaaaaa-" * 12_000,
    "paths": "/" * 200_000,
    "homes": "~a/" * 60_000,
    "keys": "token   " * 24_000,
    "schemes": "a+a://" * 30_000,
}


@pytest.mark.parametrize("text", LONG)
def test_long_texts_take_linear_time(text, tmp_path):
    TraceBuilder().annotation(LONG[text], 0, 1).save(tmp_path / "in.json")
    started = time.process_time()
    redact(tmp_path / "in.json", tmp_path / "out.json")
    assert time.process_time() - started < 1


NAMES = {
    "load C:\\Users\\al\\x.bin now": "load redacted now",
    "get https://corp.example/a?b=c now": "get redacted now",
    "fetch postgres://bob:hunter2@db/jobs now": "redacted",
    "from ~al/data/x.bin": "from redacted",
    "share \\\\server\\al\\x": "share redacted",
    "a / b": "a / b",
    "Torch-Compiled Region: 0/1": "Torch-Compiled Region: 0/1",
    "void f<int, (Kind)1>(float const*, long)::{lambda(int)#1}": None,
    "Memcpy HtoD (Pageable -> Device)": None,
}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_code_lose_only_what_tells(name, tmp_path):
    TraceBuilder().op(name, 0, 1).save(tmp_path / "in.json")
    redact(tmp_path / "in.json", tmp_path / "out.json")
    (event,) = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert event["name"] == (NAMES[name] or name)


ODD = ('{"traceEvents": [{"name": "\\ud800", "args": {"a": 123456789012345678901234567890}}]}', "[" * 5000)


@pytest.mark.parametrize("text", [*ODD, '{"a":' * 5000, '{"traceEvents": [' + "[" * 400 + "]" * 400 + "]}"])
def test_odd_json_is_redacted_or_refused(text, tmp_path):
    (tmp_path / "in.json").write_text(text)
    try:
        redact(tmp_path / "in.json", tmp_path / "out.json")
    except TraceError:
        assert not (tmp_path / "out.json").exists()
    else:
        assert json.loads((tmp_path / "out.json").read_text()) == json.loads(text)


def test_an_event_without_arguments_gets_none(tmp_path):
    events = [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}, {"ph": "X", "name": "k", "args": {}}]
    (tmp_path / "in.json").write_text(json.dumps({"traceEvents": events}))
    redact(tmp_path / "in.json", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["traceEvents"] == events


def test_a_bare_list_of_events_may_begin_with_a_blank(builder, tmp_path):
    events = json.loads(builder.to_json())["traceEvents"]
    for number, text in enumerate((json.dumps(events), f" \n{json.dumps(events)}")):
        (tmp_path / f"{number}.json").write_text(text)
        redact(tmp_path / f"{number}.json", tmp_path / f"{number}.json.gz")
    plain, blank = (gzip.decompress((tmp_path / f"{number}.json.gz").read_bytes()) for number in (0, 1))
    assert plain == blank
    assert b"alice" not in plain


def test_what_cannot_be_redacted_is_named_also_from_standard_input(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"traceEvents": [{"name": }]}')))
    with pytest.raises(DamagedTraceError) as caught:
        redact("-", tmp_path / "out.json.gz")
    assert caught.value.catalogue_message.values["path"] == "<stdin>"


def test_empty_list_of_events(tmp_path):
    (tmp_path / "in.json").write_text('{"traceEvents": [], "username": "alice"}')
    redact(tmp_path / "in.json", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == {"traceEvents": []}


def test_an_output_is_not_overwritten(builder, tmp_path):
    source, output = builder.save(tmp_path / "in.json"), tmp_path / "out.json"
    output.write_text("precious")
    with pytest.raises(OutputError, check=has_code("output-exists")):
        redact(source, output)
    assert output.read_text() == "precious"
    redact(source, output, force=True)
    assert "traceEvents" in output.read_text()


def test_a_trace_is_never_replaced_by_its_copy(builder, tmp_path):
    source = builder.save(tmp_path / "in.json")
    before = source.read_bytes()
    (tmp_path / "link.json").symlink_to(source)
    for output in (source, tmp_path / "link.json"):
        with pytest.raises(OutputError):
            redact(source, output, force=True)
    assert source.read_bytes() == before


BROKEN = {
    "truncated": (b'{"traceEvents": [{"ph": "X"', DamagedTraceError),
    "broken event": (b'{"traceEvents": [{"ph": "X", "name": "\xff"}]}', DamagedTraceError),
    "no trace": (b'{"a": 1}', NotATraceError),
    "no object": (b"3", NotATraceError),
    "cut gzip": (gzip.compress(b'{"traceEvents": []}')[:-12], DamagedTraceError),
    "whole text, wrong checksum": (gzip.compress(b'{"traceEvents": []}')[:-8] + b"\0" * 8, DamagedTraceError),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_redacted_leaves_nothing_behind(case, tmp_path):
    data, error = BROKEN[case]
    (tmp_path / "in.json").write_bytes(data)
    with pytest.raises(error):
        redact(tmp_path / "in.json", tmp_path / "out.json")
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"]


def test_missing_and_too_large(tmp_path, monkeypatch):
    with pytest.raises(TraceNotFoundError):
        redact(tmp_path / "in.json", tmp_path / "out.json")
    monkeypatch.setattr(files, "MAX_REDACTED_BYTES", 1000)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b" " * 10**6))
    with pytest.raises(TraceError, check=has_code("redaction-too-large")):
        redact(tmp_path / "bomb.json.gz", tmp_path / "out.json")


def zipped(*texts):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number, text in enumerate(texts):
            archive.writestr(f"{number}.json", text)
    return buffer.getvalue()


def test_whatever_can_be_loaded_can_be_redacted(builder, tmp_path, monkeypatch):
    text = builder.to_json()
    redact(builder.save(tmp_path / "plain.json"), tmp_path / "expected.json")
    expected = (tmp_path / "expected.json").read_bytes()
    (tmp_path / "t.json.zst").write_bytes(zstd.compress(text))
    (tmp_path / "t.zip").write_bytes(zipped(text))
    fsspec.filesystem("memory").pipe("/traces/t.json", text)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    for given in (str(tmp_path / "t.json.zst"), tmp_path / "t.zip", "memory://traces/t.json", "-"):
        redact(given, tmp_path / "out.json", force=True)
        assert (tmp_path / "out.json").read_bytes() == expected
    fsspec.filesystem("memory").rm("/traces", recursive=True)


def test_several_traces_are_redacted_one_by_one(builder, tmp_path):
    (tmp_path / "t.zip").write_bytes(zipped(builder.to_json(), builder.to_json()))
    with pytest.raises(TraceError, check=has_code("redaction-of-several")):
        redact(tmp_path / "t.zip", tmp_path / "out.json")


def test_default_outputs_of_what_is_no_file():
    assert files.choose_default_output("s3://bucket/job/t.json.zst?versionId=7") == Path("t.redacted.json.gz")
    with pytest.raises(OutputError, check=has_code("redaction-needs-name")):
        files.choose_default_output("-")


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "t.gz", "t.json.zst", "t.zip"])
def test_default_output(tmp_path, name):
    assert files.choose_default_output(tmp_path / name) == tmp_path / "t.redacted.json.gz"


def test_the_copy_does_not_tell_its_name_or_time(builder, tmp_path):
    source = builder.save(tmp_path / "in.json")
    redact(source, tmp_path / "alices.json.gz")
    first = (tmp_path / "alices.json.gz").read_bytes()
    assert b"alices" not in first
    redact(source, tmp_path / "other.json.gz")
    assert (tmp_path / "other.json.gz").read_bytes() == first
    assert first[4:8] == bytes(4), "seconds since 1970 in a gzip header"


def test_names_that_kineto_doesnt_escape_are_redacted_too(tmp_path):
    text = TraceBuilder().op("aten::mm", 0, 30).kernel("gemm", 20, 100, launch=10).to_json()
    frame = b'{"ph": "X", "cat": "python_function", "name": "{"a": 1}(3): f", "pid": 1, "tid": 1, "ts": 1, "dur": 1},\n'
    at = text.index(b"{", text.index(b"traceEvents"))
    (tmp_path / "trace.json").write_bytes(text[:at] + frame + text[at:])
    redact(tmp_path / "trace.json", tmp_path / "out.json")
    events = json.loads((tmp_path / "out.json").read_bytes())["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "kernel"] == ["gemm"]


def test_traces_of_other_tools_are_named_and_kept(tmp_path):
    trace = TraceBuilder().kernel("gemm", 20, 100, launch=10).load()
    tables = nsight_files.build_tables(trace.ranks[0])
    given = (
        nsight_files.write_database(tmp_path / "report.sqlite", tables),
        nsight_files.write_parquet_folder(tmp_path / "report_pqtdir", tables),
    )
    for path in given:
        with pytest.raises(NotATraceError, match="Nsight Systems", check=has_code("redaction-of-other-tool")):
            redact(path, tmp_path / "out.json.gz")
