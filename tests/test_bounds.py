"""Every limit has a reason, is in use, and what goes beyond it ends in a message before much work is done."""

import ast
import gzip
import io
import json
import os
import re
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from predictors import given_files as toml_bounds
from predictors import load_gpu
from predictors.errors import InvalidGpuFileError
from tracekit import bounds, ingest
from tracekit.comm import load_cluster
from tracekit.comm.errors import ClusterError
from tracekit.errors import RequestError, TracekitError
from tracekit.ingest import parse_memory_size, stream, stream_decoder, table_checks, window
from tracekit.ingest.decode import decode
from tracekit.request import PredictRequest
from tracekit.testing import TraceBuilder

ROOT = Path(__file__).parents[1]
LAB_GPU = (ROOT / "predictors/gpus/l4.toml").read_text()
LAB_CLUSTER = next((ROOT / "tracekit/comm/clusters").glob("*.toml")).read_text()


@pytest.mark.parametrize("module", [bounds, toml_bounds])
def test_each_limit_has_a_reason_and_is_used(module):
    body = ast.parse(Path(module.__file__).read_text()).body[1:]
    names = [node.targets[0].id for node in body if isinstance(node, ast.Assign)]
    reasons = [after for before, after in pairwise(body) if isinstance(before, ast.Assign)]
    assert all(isinstance(reason, ast.Expr) and len(ast.literal_eval(reason.value)) > 20 for reason in reasons)
    assert len(reasons) == len(names)
    files = [file for package in ("tracekit", "predictors") for file in ROOT.glob(f"{package}/**/*.py")]
    code = "\n".join(file.read_text() for file in files if file.name != "bounds.py")
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


def bomb(container):
    data = bytes(1000) + b" " * (100 << 20)
    if container == "gzip":
        return gzip.compress(data, 6)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", data)
    return buffer.getvalue()


@pytest.mark.parametrize("container", ["gzip", "zip"])
def test_what_unpacks_to_far_more_than_traces_is_refused(container, tmp_path):
    path = tmp_path / "bomb.bin"
    path.write_bytes(bomb(container))
    with pytest.raises(TracekitError) as refused:
        ingest.load(path)
    assert refused.value.code == "file-unpacks-too-far"


class Endless(io.RawIOBase):
    """A front, then the same block forever."""

    def __init__(self, front, block):
        self.front, self.block, self.given = front, block, 0

    def read(self, size=-1, /):
        data, self.front = (self.front or self.block)[:size], self.front[size:]
        self.given += len(data)
        return data


@pytest.mark.parametrize(
    ("front", "block"),
    [
        (b"", b" "),
        (b"", b"\0"),
        (b"", b"["),
        (b"", b"{"),
        (b'{"traceEvents":[', b" "),
        (b'{"traceEvents":[', b"["),
        (b'{"traceEvents":[', b'"'),
        (b'{"traceEvents":[', b'{"ph":"M"},'),
        (b'{"a":', b"["),
        (b'{"a":', b" "),
        (b'{"traceEvents":[]}', b" "),
        (b'{"traceEvents":[]}', b"x"),
    ],
)
def test_an_endless_text_ends_in_a_message(front, block, monkeypatch):
    monkeypatch.setattr(stream, "MAX_TEXT_BYTES", 64 << 20)
    for module, limit in ((stream_decoder, "MAX_UNREADABLE_BYTES"), (stream_decoder, "MAX_VALUE_BYTES")):
        monkeypatch.setattr(module, limit, 16 << 20)
    monkeypatch.setattr(window, "MAX_BLANK_BYTES", 16 << 20)
    monkeypatch.setattr(window, "MAX_TRAILING_BYTES", 16 << 20)
    file = Endless(front, block * (1 << 20))
    with stream.open_stream(file, "endless") as text, pytest.raises(TracekitError) as refused:
        decode(text, "endless", small_bytes=0)
    assert refused.value.code
    assert file.given < 90 << 20


def test_more_names_than_any_job_has_are_refused(monkeypatch):
    monkeypatch.setattr(table_checks, "MAX_DISTINCT_NAMES", 2)
    builder = TraceBuilder().kernel("a", 10, 1).kernel("b", 20, 1)
    assert builder.load().rank().activities.height == 2
    with pytest.raises(TracekitError) as refused:
        builder.kernel("c", 30, 1).load()
    assert refused.value.code == "names-too-many"


@pytest.mark.parametrize("limit", ["MAX_FILES", "MAX_TRACES"])
def test_more_files_than_are_read_at_once_are_refused(limit, monkeypatch, tmp_path):
    monkeypatch.setattr(ingest, limit, 2)
    for rank in range(3):
        builder = TraceBuilder().kernel("gemm", 20, 10, launch=0)
        builder.metadata["distributedInfo"] = {"rank": rank, "world_size": 3}
        builder.save(tmp_path / f"rank{rank}.json")
    with pytest.raises(TracekitError) as refused:
        ingest.load(tmp_path)
    assert refused.value.code == "files-too-many-to-read"
    assert ingest.load(tmp_path, ranks=[2]).rank().rank == 2


def test_an_archive_of_thousands_of_files_is_opened_once(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for number in range(2000):
            archive.writestr(f"rank{number}.json", "{}")
    opened = []
    read_table = zipfile.ZipFile._RealGetContents
    monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", lambda self: (read_table(self), opened.append(self)))
    with pytest.raises(TracekitError):
        ingest.load(tmp_path / "many.zip")
    assert len([archive for archive in opened if archive.filelist]) == 1


BAD_TOML = {
    "device": None,
    "sparse": None,
    "pipe": None,
    "directory": None,
    "deep": "a = " + 20_000 * "[",
    "nested": LAB_GPU + "\n[x]\ny = " + 30 * "[" + 30 * "]",
    "digits": "name = " + 6000 * "9",
    "long": "#" * 2_000_000,
    "bytes": b"\xff\xfe",
    "blank": "",
}


def write_toml(kind, path):
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(2 << 30)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        content = BAD_TOML[kind]
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("kind", BAD_TOML)
def test_a_description_is_read_within_limits(kind, tmp_path):
    write_toml(kind, tmp_path / "lab.toml")
    with pytest.raises(InvalidGpuFileError):
        load_gpu(str(tmp_path / "lab.toml"))
    with pytest.raises(ClusterError):
        load_cluster(str(tmp_path / "lab.toml"))


@pytest.mark.parametrize("value", ["1e300", "1e-300", "9" * 400, "1e308", "-1", "0", "nan", "inf", "true", '"x"'])
def test_figures_that_no_gpu_has_are_refused(value, tmp_path):
    keys = re.findall(r"^(\w+) = [\d.]+", LAB_GPU.partition("[sources]")[0], re.MULTILINE)
    assert len(keys) > 15
    for key in keys:
        text = re.sub(rf"^{key} = [\d._]+", f"{key} = {value}", LAB_GPU, count=1, flags=re.MULTILINE)
        (tmp_path / "lab.toml").write_text(text)
        with pytest.raises(InvalidGpuFileError, match=f"{key}|64 bits"):
            load_gpu(str(tmp_path / "lab.toml"))


@pytest.mark.parametrize("value", ["1e300", "9" * 400, "nan", "inf"])
def test_figures_that_no_cluster_has_are_refused(value, tmp_path):
    keys = re.findall(r"^(\w+) = [\d.]+$", LAB_CLUSTER.partition("[sources]")[0], re.MULTILINE)
    assert len(keys) > 3
    for key in keys:
        text = re.sub(rf"^{key} = [\d._]+$", f"{key} = {value}", LAB_CLUSTER, count=1, flags=re.MULTILINE)
        (tmp_path / "lab.toml").write_text(text)
        with pytest.raises(ClusterError):
            load_cluster(str(tmp_path / "lab.toml"))


NO_NUMBERS = ["２", "٣", "1_0", "nan", "inf", "1e999", "", " ", "+", "0x10", "9" * 5000, "1 2"]


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_what_is_no_plain_number_is_refused_in_every_option(number):
    options = {
        "price": f"h100-sxm={number}",
        "steps": number,
        "unprofiled_step": f"{number}ms",
        "host_speed": f"op={number}",
        "what_if": f"scale(family=gemm, {number})",
        "cluster": f"4x{number}xh100-sxm@ndr400",
        "pp_schedule": f"interleaved:{number}",
    }
    for name, value in options.items():
        with pytest.raises(TracekitError):
            PredictRequest(**{"gpu": "h100-sxm", name: value})
    with pytest.raises(TracekitError):
        parse_memory_size(f"{number}G")


@pytest.mark.parametrize(
    "option",
    [
        {"price": "h100-sxm==2"},
        {"price": "=2"},
        {"price": "h100-sxm="},
        {"steps": "1:"},
        {"steps": ":"},
        {"steps": "1:2:3"},
        {"source_gpu": ""},
        {"source_gpu": " "},
        {"gpu": ""},
        {"cluster": ""},
        {"source_cluster": ""},
        {"what_if": ""},
        {"without_rule": ""},
        {"host_speed": ""},
        {"unprofiled_step": ""},
        {"pp_schedule": ""},
        {"samples": float("nan")},
        {"batch": float("inf")},
    ],
    ids=json.dumps,
)
def test_empty_and_doubled_texts_are_no_options(option):
    with pytest.raises((TracekitError, LookupError)) as refused:
        PredictRequest(**{"gpu": "h100-sxm"} | option)
    assert isinstance(refused.value, RequestError) or refused.value.code
