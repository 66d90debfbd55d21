"""How the study of other tools compares; microseconds."""

import polars as pl
import pytest

from tests.validation.studies.oracles import exports, peers, times, work
from tests.validation.study import MissingInputError


def test_a_tool_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    with pytest.raises(MissingInputError, match="TraceLens of github"):
        peers.require("TraceLens")


def test_figures_are_equal_near_or_further() -> None:
    assert [work.compare(100.0, ours) for ours in (100.0, 104.0, 94.0, 0.0)] == [0, 1, 2, 2]
    assert work.compare(0.0, 0.0) == 0


def test_calls_are_summed_up_by_family_and_those_that_differ_by_kind() -> None:
    calls = [
        work.Call("t", "aten::mm", "[[2]]", "GEMM", (100.0, float("nan")), (100.0, 7.0)),
        work.Call("t", "aten::mm", "[[3]]", "GEMM", (100.0, 10.0), (50.0, 10.0)),
        work.Call("u", "aten::mm", "[[4]]", "GEMM", (100.0, 10.0), (300.0, 10.2)),
    ]
    assert [*work.list_families(calls)] == [("GEMM", "3", "1", "0", "2", "1", "1", "0")]
    (kind,) = work.list_kinds(calls)
    assert kind == ("aten::mm", "FLOPs", "2", "300", "100", "[[4]]", "u", "not judged", "")


def test_busy_time_is_a_union_and_exposed_communication_what_no_kernel_hides() -> None:
    """Kernels 0 to 10 and 20 to 30, NCCL 5 to 25, a copy 28 to 40: 40 busy, 10 exposed."""
    rows = [
        ("gemm", "kernel", 0, 10),
        ("gemm", "kernel", 20, 10),
        ("ncclDev", "kernel", 5, 20),
        ("cp", "memcpy", 28, 12),
    ]
    table = pl.DataFrame(rows, schema=["name", "kind", "ts", "dur"], orient="row")
    activities = table.with_columns(ts_ns=pl.col("ts") * 1000, dur_ns=pl.col("dur") * 1000)
    assert times.measure_union(activities) == (40.0, 10.0)
    assert times.measure_union(activities.clear()) == (0.0, 0.0)


def test_nodes_in_a_circle_never_become_free() -> None:
    assert exports.count_circular({1: [], 2: [1, 9], 3: [4], 4: [3], 5: [4]}) == 3
