"""Files that hold several ranks: read as ranks where those can be told apart, refused otherwise."""

import io
import json
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit
from tests.codes import has_code, list_codes
from tracekit.errors import NotATraceError
from tracekit.ingest import load_bytes
from tracekit.ingest.merged_ranks import UnlabelledStream, number_ranks
from tracekit.testing import A100, TraceBuilder
from tracekit.trace import Trace

H100 = {**A100, "name": "NVIDIA H100 80GB HBM3"}


def build_rank(rank: int | None, *, device: int = 0, late_us: float = 0, gpu: dict[str, Any] = A100) -> TraceBuilder:
    """Build three kernels of 50 us and ten per rank."""
    builder = TraceBuilder(gpu)
    for number in range(3):
        at = 100.0 * number + late_us
        builder.op("aten::mm", at, 40, dims=[[8, 8], [8, 8]], types=["float"] * 2)
        builder.kernel("gemm", at + 20, 50 + 10 * (rank or 0), launch=at + 10)
    if rank is not None:
        builder.metadata["distributedInfo"] = {"rank": rank, "world_size": 2}
    for event in builder.events:
        if event["cat"] == "kernel":
            event["pid"] = event["args"]["device"] = device
        else:
            event["pid"] = 100 + device
    return builder


def merge_labelled(*builders: TraceBuilder, labels: tuple[str, ...]) -> bytes:
    """Merge traces as SGLang does: labels before process ids, keys of the first file, the GPUs of all."""
    document = json.loads(builders[0].to_json())
    document["deviceProperties"] = [gpu for each in builders for gpu in each.metadata["deviceProperties"]]
    document["traceEvents"] = [
        {**event, "pid": f"[{label}] {event['pid']}"}
        for builder, label in zip(builders, labels, strict=True)
        for event in builder.events
    ]
    return json.dumps(document).encode()


def merge_events(*builders: TraceBuilder) -> bytes:
    """Merge traces as they are, all events in one list."""
    document = json.loads(builders[0].to_json())
    document["traceEvents"] = [event for builder in builders for event in builder.events]
    return json.dumps(document).encode()


def list_kernel_times_us(trace: Trace) -> dict[int | None, list[int]]:
    return {rank.rank: (rank.activities["dur_ns"] // 1000).to_list() for rank in trace.ranks}


def test_a_labelled_file_is_read_as_its_ranks() -> None:
    parts = build_rank(0), build_rank(1, gpu=H100)
    trace = load_bytes(merge_labelled(*parts, labels=("TP00-DP00-PP00-EP00", "TP01-DP00-PP00-EP00")), "merged.json")
    assert list_kernel_times_us(trace) == {0: [50] * 3, 1: [60] * 3}
    assert [rank.world_size for rank in trace.ranks] == [2, 2]
    assert [rank.device and rank.device.name for rank in trace.ranks] == [A100["name"], H100["name"]]
    for rank, part in zip(trace.ranks, parts, strict=True):
        alone = part.load().rank()
        for name, table in alone.tables.items():
            assert rank.tables[name].equals(table), name
    assert list_codes(trace.rank(0).warnings) == ["ranks-in-one-file"]


@pytest.mark.parametrize(
    ("labels", "ranks"),
    [
        ("[TP00] [TP01] [TP02]", [0, 1, 2]),
        ("[TP01] [TP00]", [1, 0]),
        ("[TP02] [TP03]", [2, 3]),
        # Attention in data parallel: the DP rank follows from the TP rank.
        ("[TP00-DP00-PP00-EP00] [TP01-DP00-PP00-EP01] [TP02-DP01-PP00-EP02] [TP03-DP01-PP00-EP03]", [0, 1, 2, 3]),
        ("[TP00-PP00] [TP01-PP00] [TP00-PP01] [TP01-PP01]", [0, 1, 2, 3]),
        ("[TP00-DP00-PP00] [TP01-DP00-PP00] [TP00-DP01-PP00] [TP01-DP01-PP00]", [0, 1, 2, 3]),
        ("[worker b] [worker a]", [0, 1]),
    ],
)
def test_ranks_of_labels(labels: str, ranks: list[int]) -> None:
    assert number_ranks([label.encode() + b"]" for label in labels.removesuffix("]").split("] ")]) == ranks


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.sampled_from(['"pid": ', '"pid":', '"pid" : ']))
def test_labels_are_found_wherever_the_text_is_cut(sizes: list[int], key: str) -> None:
    class Pieces(io.RawIOBase):
        def readinto(self, buffer: Any, /) -> int:
            size = sizes.pop() if sizes else len(buffer)
            data = text.read(min(size, len(buffer)))
            buffer[: len(data)] = data
            return len(data)

    events = ['"tid": 7, "cat": "p', '"args": {"pi": 1}', '"name": "pid"']
    text = io.BytesIO(
        "".join(f"{{{key}{json.dumps(f'[TP0{i % 2}] {i}')}, {e}}}" for i, e in enumerate(events)).encode()
    )
    stream, parts, buffer = UnlabelledStream(Pieces()), [], bytearray(64)
    while size := stream.readinto(memoryview(buffer)):
        parts.append(bytes(buffer[:size]))
    numbers = (0, (1 << 40) + 1, 2)
    assert b"".join(parts).decode() == "".join(f"{{{key}{n}, {e}}}" for n, e in zip(numbers, events, strict=True))
    assert stream.labels == [b"[TP00]", b"[TP01]"]


@pytest.mark.parametrize("between", [b"", b"\n", b",\n"])
@pytest.mark.parametrize("in_list", [False, True])
def test_documents_that_note_their_ranks_are_read_as_ranks(between: bytes, in_list: bool) -> None:
    text = between.join((build_rank(1).to_json(), build_rank(0).to_json()))
    trace = load_bytes(b"[" + text + b"]" if in_list else text, "ranks.json")
    assert list_kernel_times_us(trace) == {0: [50] * 3, 1: [60] * 3}
    codes = [code for rank in trace.ranks for code in list_codes(rank.warnings)]
    assert codes == ["ranks-in-one-file"]


def test_documents_without_ranks_are_numbered_by_their_gpus() -> None:
    text = build_rank(None, device=3).to_json() + build_rank(None, device=2).to_json()
    trace = load_bytes(text, "ranks.json")
    assert [rank.rank for rank in trace.ranks] == [2, 3]
    assert "ranks-by-device" in [code for rank in trace.ranks for code in list_codes(rank.warnings)]


@pytest.mark.parametrize("following", [build_rank(None).to_json(), build_rank(0).to_json(), b'{"a": 1}', b"x", b"{"])
def test_what_follows_a_trace_and_is_no_other_rank_is_said(following: bytes) -> None:
    trace = load_bytes(build_rank(None).to_json() + following, "trace.json")
    assert list_kernel_times_us(trace) == {None: [50] * 3}
    (warning,) = trace.rank().warnings
    assert warning.code == "data-behind-trace"
    assert warning.values["offset"] == len(build_rank(None).to_json())


@pytest.mark.parametrize("following", [b"x", b"{", b'{"a": 1}'])
def test_what_follows_the_last_of_several_ranks_is_said(following: bytes) -> None:
    text = build_rank(1).to_json() + build_rank(0).to_json()
    trace = load_bytes(text + following, "ranks.json")
    assert list_kernel_times_us(trace) == {0: [50] * 3, 1: [60] * 3}
    offsets = [one.values["offset"] for rank in trace.ranks for one in rank.warnings if "offset" in one.values]
    assert offsets == [len(text)]
    left = pl.concat([rank.ledger for rank in trace.ranks]).filter(kind="data-behind-trace")
    assert left.select("first_byte", "count").rows() == [(len(text), len(following))]


def test_processes_that_drive_their_own_gpus_are_read_as_ranks() -> None:
    """Rank 1 launches 15 us later, so it cannot have launched the kernels of rank 0, which start 10 us after launch."""
    merged = merge_events(build_rank(0), build_rank(1, device=1, late_us=15))
    trace = load_bytes(merged, "merged.json")
    assert list_kernel_times_us(trace) == {0: [50] * 3, 1: [60] * 3}
    assert [rank.ops["pid"].unique().to_list() for rank in trace.ranks] == [[100], [101]]
    assert "ranks-by-device" in list_codes(trace.rank(0).warnings)


@pytest.mark.parametrize(("device", "late_us"), [(0, 15), (1, 5)])
def test_processes_that_cannot_be_told_apart_are_refused(device: int, late_us: float) -> None:
    """Both on GPU 0; or so close that either process may have launched the kernels of either GPU."""
    other = build_rank(1, device=device, late_us=late_us)
    for event in other.events:
        if event["cat"] != "kernel":
            event["pid"] = 200
    with pytest.raises(NotATraceError, check=has_code("traces-merged")):
        load_bytes(merge_events(build_rank(0), other), "merged.json")


def test_a_merged_file_beside_its_parts_is_left_out(tmp_path: Any) -> None:
    labels = ("TP00", "TP01")
    (tmp_path / "merged.json").write_bytes(merge_labelled(build_rank(0), build_rank(1), labels=labels))
    assert [rank.rank for rank in tracekit.load(tmp_path).ranks] == [0, 1]
    for rank in range(2):
        build_rank(rank).save(tmp_path / f"trace_rank{rank}.json")
    trace = tracekit.load(tmp_path)
    assert [rank.rank for rank in trace.ranks] == [0, 1]
    assert {rank.source.rsplit("/", 1)[-1] for rank in trace.ranks} == {"trace_rank0.json", "trace_rank1.json"}
