"""Where in a trace private texts stand, what stays of an odd event, and what is refused, with its limits."""

import gzip
import io
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.codes import has_code
from tracekit import secret_scan
from tracekit.errors import DamagedTraceError, NotATraceError, OutputError, TraceError
from tracekit.redact import REDACTED, RedactionSummary, files, redact
from tracekit.redact.redactor import RedactionPatterns

PLACE = "/home/alice/model.pt"
TOKEN = "ghp_" + "a1" * 18
Redact = Callable[..., tuple[list[Any], RedactionSummary]]


@pytest.fixture
def redacted(tmp_path: Path) -> Redact:
    """The events of a redacted trace, and what was removed of it."""

    def make(*events: Any, **metadata: Any) -> tuple[list[Any], RedactionSummary]:
        (tmp_path / "in.json").write_text(json.dumps(metadata | {"traceEvents": list(events)}))
        removed = redact(tmp_path / "in.json", tmp_path / "out.json", force=True)
        return json.loads((tmp_path / "out.json").read_text())["traceEvents"], removed

    return make


@pytest.mark.parametrize(
    ("event", "changed"),
    [
        ({"ph": "X", "ts": 1, "id": PLACE}, {"id": REDACTED}),
        ({"cat": "kernel", "name": 7, "args": None}, {}),
        ({"cat": "kernel", "name": {"at": PLACE}}, {"name": {"at": REDACTED}}),
        ({"cat": "kernel", "name": [PLACE]}, {"name": [REDACTED]}),
        ({"name": "k", "args": PLACE}, {"args": REDACTED}),
        ({"name": "k", "args": [1, PLACE]}, {"args": [1, REDACTED]}),
        ({"name": "k", "args": {}}, {}),
        ({"name": "k", "args": {PLACE: 1}}, {"args": {REDACTED: 1}}),
        ({"name": "k", "args": {"a": {PLACE: {"b": [PLACE, 2]}}}}, {"args": {"a": {REDACTED: {"b": [REDACTED, 2]}}}}),
        ({"name": "k", "args": {"a": True, "b": 1.5, "c": None, "d": 2**70}}, {}),
        ({"name": f"say {PLACE}"}, {"name": REDACTED}),
        ({"cat": "cpu_op", "name": f"say {PLACE} now"}, {"name": f"say {REDACTED} now"}),
        ({"cat": "cpu_op", "name": f"say {TOKEN} now"}, {"name": REDACTED}),
        ({"cat": "cpu_op", "name": "aten::mm"}, {}),
    ],
)
def test_what_is_kept_of_an_event(event: Any, changed: dict[str, Any], redacted: Redact) -> None:
    assert redacted(event)[0] == [event | changed]


@pytest.mark.parametrize(
    ("track", "args", "kept"),
    [
        ("process_sort_index", {"sort_index": 5}, {"sort_index": 5}),
        ("process_name", {"name": "python"}, {"name": REDACTED}),
        ("process_labels", {"labels": "CPU"}, {"labels": "CPU"}),
        ("process_labels", {"labels": "GPU 12"}, {"labels": "GPU 12"}),
        ("process_labels", {"labels": "GPU 1 of lab"}, {"labels": REDACTED}),
        ("thread_name", {"name": "stream 7 (train)"}, {"name": "stream 7"}),
        ("thread_name", {"name": PLACE}, {"name": REDACTED}),
        ("thread_name", {"name": {"at": PLACE}}, {"name": {"at": REDACTED}}),
        ("thread_name", {PLACE: "a"}, {REDACTED: "a"}),
    ],
)
def test_what_is_kept_of_a_track(track: str, args: Any, kept: Any, redacted: Redact) -> None:
    event = {"ph": "M", "name": track, "args": args}
    assert redacted(event)[0] == [event | {"args": kept}]


def test_what_is_no_event_is_redacted_too(redacted: Redact) -> None:
    assert redacted("a text", [PLACE], {PLACE: 1}, 5)[0] == ["a text", [REDACTED], {REDACTED: 1}, 5]


def test_events_keep_their_order_but_for_those_of_stacks(redacted: Redact) -> None:
    events = [{"name": "a"}, {"cat": "python_function", "name": "b"}, {"name": "c"}, {"cat": "python_function"}]
    kept, removed = redacted(*events)
    assert kept == [{"name": "a"}, {"name": "c"}]
    assert removed == RedactionSummary(events=2)


def test_arguments_of_stacks_and_modules_go(redacted: Redact) -> None:
    names = ("Call stack", "Call Stack", "Module Hierarchy", "module_fqn", "kernel_file", "Stack")
    dropped = dict.fromkeys(names, "")
    [event], removed = redacted({"name": "k", "args": dropped | {"stream": 7}})
    assert event == {"name": "k", "args": {"stream": 7}}
    assert removed.arguments == dict.fromkeys(dropped, 1)


def test_a_text_is_told_by_its_key(redacted: Redact) -> None:
    """An opaque word is a secret where it stands under a key that says so, at any depth."""
    opaque = "correct-horse-battery"
    args = {"note": opaque, "api_key": opaque, "deep": {"password": [opaque, 1]}, "list": [opaque]}
    [event], removed = redacted({"name": "k", "args": args})
    assert event["args"] == {"note": opaque, "api_key": REDACTED, "deep": {"password": [REDACTED, 1]}, "list": [opaque]}
    assert removed.texts == {"a password or key in an assignment": 2}


def test_names_of_hosts_and_users_come_from_the_metadata_alone(redacted: Redact) -> None:
    events = [{"name": "gemm runs", "args": {"host": "gemm", "user": "runs"}}, {"name": "by carol"}]
    kept, removed = redacted(*events, user_name="carol")
    assert kept == [{"name": "gemm runs", "args": {"host": "gemm", "user": "runs"}}, {"name": REDACTED}]
    assert (removed.metadata, removed.texts) == (["user_name"], {"the name of a host or user": 1})


def test_metadata_that_says_nothing_is_kept(tmp_path: Path) -> None:
    kept = {
        "schemaVersion": 1, "deviceProperties": [{"name": "NVIDIA H100"}], "distributedInfo": {"backend": "nccl"},
        "cupti_version": 26, "hip_runtime_version": 6, "displayTimeUnit": "ms", "tracekit": {"a": PLACE},
    }  # fmt: skip
    gone = {"traceName": PLACE, "HOSTNAME": "lab", "schemaVersion2": 1, "xcupti_version": 1, "note": "x"}
    (tmp_path / "in.json").write_text(json.dumps(kept | gone | {"traceEvents": []}))
    removed = redact(tmp_path / "in.json", tmp_path / "out.json")
    document = json.loads((tmp_path / "out.json").read_text())
    assert document == kept | {"tracekit": {"a": REDACTED}, "traceName": REDACTED, "traceEvents": []}
    assert removed.metadata == ["HOSTNAME", "schemaVersion2", "xcupti_version", "note"]


def test_summaries_have_nothing_in_common() -> None:
    one = RedactionSummary()
    one.metadata.append("a")
    one.arguments["b"] += 1
    one.texts["c"] += 1
    assert RedactionSummary() == RedactionSummary([], 0, Counter(), Counter())


def test_without_a_key_a_text_stands_for_itself() -> None:
    patterns = RedactionPatterns()
    assert patterns.kind("correct-horse-battery", "password") == "a password or key in an assignment"
    assert patterns.kind("correct-horse-battery") is None
    assert patterns.kind(TOKEN, "note") == patterns.kind(TOKEN) == "a GitHub token"
    assert patterns.redact_parts(f"{TOKEN} and {PLACE}") == "redacted and redacted"


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


EVENTS = b'{"traceEvents": []}'


def test_the_trace_itself_is_not_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", EVENTS)
    (tmp_path / "link.json").symlink_to(path)
    for output in (path, tmp_path / "link.json"):
        with pytest.raises(OutputError, check=has_code("output-is-input")):
            redact(path, output, force=True)
    assert path.read_bytes() == EVENTS


def test_an_output_is_checked_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(OutputError, check=has_code("output-no-directory")):
        redact(tmp_path / "missing.json", tmp_path / "nowhere" / "out.json")


def test_a_trace_may_be_as_large_as_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.json.gz", gzip.compress(EVENTS))
    monkeypatch.setattr(files, "MAX_REDACTED_BYTES", len(EVENTS))
    redact(path, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == {"traceEvents": []}
    monkeypatch.setattr(files, "MAX_REDACTED_BYTES", len(EVENTS) - 1)
    with pytest.raises(TraceError, check=has_code("redaction-too-large")) as refused:
        redact(path, tmp_path / "other.json")
    assert refused.value.catalogue_message.values == {"path": str(path), "limit_bytes": len(EVENTS) - 1}


def test_what_is_refused_is_named(tmp_path: Path) -> None:
    for name in ("a.json", "b.json", "c.json"):
        write(tmp_path / name, EVENTS)
    with pytest.raises(TraceError, check=has_code("redaction-of-several")) as refused:
        redact(tmp_path, tmp_path / "out.json")
    assert refused.value.catalogue_message.values == {"path": str(tmp_path / "a.json"), "others": 2}
    other = write(tmp_path / "other", b'{"a": 1}')
    for data in (b'{"a": 1}', b"3", b'{"traceEvents": {}}', b'{"traceEvents": "[]"}', b'{"traceEvents": {"a": []}}'):
        with pytest.raises(NotATraceError, check=has_code("redaction-of-other-json")) as not_one:
            redact(write(other, data), tmp_path / "out.json")
        assert not_one.value.catalogue_message.values == {"path": str(other)}
    cut = write(tmp_path / "cut.json.gz", gzip.compress(EVENTS)[:-12])
    with pytest.raises(DamagedTraceError, check=has_code("file-damaged")) as damaged:
        redact(cut, tmp_path / "out.json")
    assert damaged.value.catalogue_message.values["path"] == str(cut)


def test_damage_is_told_with_its_place_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.json", b'{"traceEvents": [{"name": }]}')
    with pytest.raises(DamagedTraceError, check=has_code("redaction-of-damaged")) as damaged:
        redact(path, tmp_path / "out.json")
    values = damaged.value.catalogue_message.values
    assert values["path"] == str(path)
    assert "byte 26" in str(values["reason"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[{]")))
    with pytest.raises(DamagedTraceError) as piped:
        redact("-", tmp_path / "out.json")
    assert piped.value.catalogue_message.values["path"] == "<stdin>"


def test_the_copy_is_compressed_if_its_name_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", b'\xef\xbb\xbf{"traceEvents": [{"name": "a"}]}')  # a mark of the byte order
    redact(path, tmp_path / "out.json.gz")
    redact(path, tmp_path / "out.json")
    plain = (tmp_path / "out.json").read_bytes()
    assert json.loads(plain) == {"traceEvents": [{"name": "a"}]}
    assert gzip.decompress((tmp_path / "out.json.gz").read_bytes()) == plain
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["out.json", "out.json.gz", "t.json"]


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ("run/t.pt.trace.json", "run/t.pt.trace.redacted.json.gz"),
        ("run/t", "run/t.redacted.json.gz"),
        ("t.zip.json.gz", "t.zip.redacted.json.gz"),
        ("memory://a/run/t.json?x=1", "t.redacted.json.gz"),
        ("file:///run/t.json", "t.redacted.json.gz"),
    ],
)
def test_where_the_copy_goes_by_default(given: str, output: str) -> None:
    assert files.choose_default_output(given) == files.choose_default_output(Path(given) if ":" not in given else given)
    assert files.choose_default_output(given) == Path(output)


def test_texts_are_flattened_with_their_keys() -> None:
    value = {"a": {"b": ["x", ["y"], {"c": "z"}], 7: ("w",)}, "n": 5, "none": None}
    assert list(secret_scan.flatten(value)) == ["b=x", "b=y", "c=z", "7=w"]
    assert list(secret_scan.flatten("alone")) == ["=alone"]


def test_each_kind_of_secret_is_found_once_a_place() -> None:
    other = "glpat-" + "b2" * 10
    found = secret_scan.find_secrets({"here": [TOKEN, f"{TOKEN} {other}"], "there": [TOKEN]})
    assert found == [("a GitHub token", "here"), ("a GitLab token", "here"), ("a GitHub token", "there")]
