"""``tracekit sweep``."""

import json
from pathlib import Path

import openpyxl
import polars as pl
import pytest

from tracekit.testing import TraceBuilder


@pytest.fixture
def trace(tmp_path):
    builder = TraceBuilder().op("autograd::engine::x", 0, 1)
    builder.metadata["distributedInfo"] = {"rank": 0, "world_size": 8}
    message = {"Collective name": "allreduce", "In msg nelems": 2**24, "dtype": "BFloat16", "Group size": 8}
    builder.op("record_param_comms", 2, 10, **message).kernel("ncclDevKernel_AllReduce", 20, 400, launch=4)
    return builder.save(tmp_path / "trace.json")


def test_a_table_of_layouts(run, trace, tmp_path):
    to = ("--cluster", "4x8xh100-sxm@ndr400", "--price", "h100-sxm=2.5", "--samples", 32)
    code, out, err = run("sweep", trace, *to, "-q", "-o", tmp_path / "sweep.json", "--with-details")
    assert (code, err) == (0, "")
    for expected in ("ranks", "samples/s", "$/1k", "up to", "8 ranks = dp 8"):
        assert expected in " ".join(out.split())
    data = json.loads((tmp_path / "sweep.json").read_text())
    assert data == json.loads(run("sweep", trace, *to, "--json")[1])
    assert [entry["layout"]["world_size"] for entry in data["layouts"]] == [32, 16, 8]
    assert set(data["knees"]) == {"4x8xh100-sxm@ndr400"}


@pytest.mark.parametrize(("top", "left_out"), [("1", 2), ("2", 1), ("3", None)])
def test_a_sweep_says_how_many_layouts_it_leaves_out(run, trace, top, left_out):
    out = run("sweep", trace, "--cluster", "4x8xh100-sxm@ndr400", "--top", top, "-q")[1]
    assert (f"{left_out} more: --top 3" in out) is (left_out is not None)
    assert ("more:" in out) is (left_out is not None)


def test_a_sweep_says_what_any_report_of_the_trace_warns_of(run, trace, tmp_path):
    out = run("sweep", trace, "--cluster", "8xh100-sxm", "-q", "-o", tmp_path / "sweep.md")[1]
    (warned,) = (line for line in " ".join(out.split()).split("warning: ")[1:] if "One of 8 ranks" in line)
    assert "Give all ranks' traces" in warned
    assert "- warning: One of 8 ranks" in (tmp_path / "sweep.md").read_text()
    told = json.loads(run("sweep", trace, "--cluster", "8xh100-sxm", "--json")[1])["warnings"]
    assert "one-rank-read" in [one["code"] for one in told]


def test_a_gpu_without_a_price_costs_nothing_that_is_known(run, trace):
    to = ("--cluster", "8xh100-sxm", "--cluster", "8xb200", "--samples", 32)
    out = run("sweep", trace, *to, "--price", "h100-sxm=2.5", "-q")[1]
    rows = [line.split() for line in out.splitlines() if line.startswith("#") and " is " not in line]
    price = {row[0]: row[-5] for row in rows}
    assert price["#2"] == "–"
    assert 0 < float(price["#1"]) < 0.01


def test_a_sweep_in_other_forms(run, trace, tmp_path):
    """All layouts, also those that the screen has no room for."""
    to = ("--cluster", "4x8xh100-sxm@ndr400", "--price", "h100-sxm=2.5", "--samples", 32, "--top", 1, "-q")
    for form in ("csv", "md", "parquet", "xlsx"):
        assert run("sweep", trace, *to, "-o", tmp_path / f"sweep.{form}")[0] == 0
    csv, parquet = pl.read_csv(tmp_path / "sweep.csv"), pl.read_parquet(tmp_path / "sweep.parquet")
    assert csv["ranks"].to_list() == parquet["ranks"].to_list() == [32, 16, 8]
    rows = [*openpyxl.load_workbook(tmp_path / "sweep.xlsx")["layouts"].values]
    assert [row[1] for row in rows] == ["ranks", 32, 16, 8]
    text = (tmp_path / "sweep.md").read_text()
    assert text.count("\n| ") == 5
    assert "- 4x8xh100-sxm@ndr400: up to" in text
    code, _, err = run("sweep", trace, *to, "-o", tmp_path / "sweep.html")
    assert code == 1
    assert ".md" in err


def test_a_sweep_says_what_sets_the_pace(run, tmp_path):
    """A CPU that works for 5 ms, a kernel of 20 µs."""
    builder = TraceBuilder().op("aten::slow", 0, 5000).kernel("gemm", 5030, 20, launch=5010)
    slow = builder.op("aten::end", 5010, 50).save(tmp_path / "slow.json")
    to = ("--cluster", "8xh100-sxm", "--cluster", "8xb200", "--world-size", 8)
    out = " ".join(run("sweep", slow, *to, "-q")[1].split())
    assert "On #1, #2 the CPU sets the pace in the layout that gets most done: " in out
    assert "A faster GPU won't help there" in out
    assert "≈ gets as much done as the line above" in out
    limits = json.loads(run("sweep", slow, *to, "--json")[1])["limits"]
    assert {one["kind"] for one in limits.values()} == {"host"}


def test_numbers_of_replicas_that_are_asked_for_are_those_of_the_layouts(run, trace):
    out = run("sweep", trace, "--cluster", "4x8xh100-sxm@ndr400", "--dp", 8, "--dp", 16, "--json")[1]
    assert {(one["layout"]["dp"], one["layout"]["world_size"]) for one in json.loads(out)["layouts"]} == {
        (8, 8),
        (16, 16),
    }


def test_what_can_not_be_done_is_said_in_one_line(run, trace):
    code, out, err = run("sweep", trace, "--cluster", "8xh100-sxm", "--world-size", 64)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "8 GPUs" in err
    assert run("sweep", trace)[0] == 2
    assert "Example" in run("sweep", "--help")[1]


def test_clusters_have_their_names_where_nothing_can_be_said_of_more_ranks(run, tmp_path):
    """One layout on each: no number of ranks from which on more help less, but what #1 and #2 are."""
    path = TraceBuilder().op("aten::mm", 0, 5).kernel("sgemm", 20, 400, launch=4).save(tmp_path / "trace.json")
    _, out, _ = run("sweep", path, "--gpu", "h100-sxm", "--gpu", "l40s", "--world-size", 1)
    assert "is dgx-h100\n" in out
    assert "is l40s-pcie\n" in out
    assert "each GPU keeps" not in out
    assert "steps of a replica are counted" in out
    assert "each GPU keeps" in run("sweep", path, "--gpu", "h100-sxm")[1]


def test_a_sweep_of_one_size_says_once_what_becomes_of_the_batch(run, tmp_path):
    builder = TraceBuilder().op("aten::mm", 0, 5).kernel("sgemm", 20, 400, launch=4)
    path = builder.op("aten::end", 10, 410).save(tmp_path / "trace.json")
    out = " ".join(run("sweep", path, "--gpu", "h100-sxm", "--world-size", 8)[1].split())
    assert out.count("Each rank keeps its batch") == 1
    assert "8 times a rank's" in out


def test_the_bubble_of_a_pipeline_is_a_percentage(run):
    """Of two stages with four micro-batches each waits for one pass of five; the gradients' exchange is longer."""
    sample = Path(__file__).parents[2] / "sample_traces" / "synthetic_transformer_train.json.gz"
    to = ("--cluster", "8xh100-sxm", "--world-size", 8, "--pp", 2, "--micro-batches", 4)
    table = run("sweep", sample, *to, "-q")[1]
    (shown,) = (line.split() for line in table.splitlines() if "dp4 pp2" in line)
    (entry,) = json.loads(run("sweep", sample, *to, "--json")[1])["layouts"]
    bubble = entry["pipeline"]["bubble"]
    assert 0.2 <= bubble < 0.3
    assert f"{100 * bubble:.0f}" in shown
