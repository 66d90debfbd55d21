"""``tracekit sweep``."""

import json

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
    code, out, err = run("sweep", trace, *to, "-q", "-o", tmp_path / "sweep.json")
    assert (code, err) == (0, "")
    for expected in ("ranks", "samples/s", "$/1k", "up to", "8 ranks = dp 8"):
        assert expected in " ".join(out.split())
    data = json.loads((tmp_path / "sweep.json").read_text())
    assert data == json.loads(run("sweep", trace, *to, "--json")[1])
    assert [entry["layout"]["world_size"] for entry in data["layouts"]] == [32, 16, 8]
    assert set(data["knees"]) == {"4x8xh100-sxm@ndr400"}


def test_a_gpu_without_a_price_costs_nothing_that_is_known(run, trace):
    to = ("--cluster", "8xh100-sxm", "--cluster", "8xb200", "--samples", 32)
    out = run("sweep", trace, *to, "--price", "h100-sxm=2.5", "-q")[1]
    rows = [line.split() for line in out.splitlines() if line.startswith("#") and " is " not in line]
    price = {row[0]: row[-4] for row in rows}
    assert price["#2"] == "–"
    assert 0 < float(price["#1"]) < 0.01


def test_what_can_not_be_done_is_said_in_one_line(run, trace):
    code, out, err = run("sweep", trace, "--cluster", "8xh100-sxm", "--world-size", 64)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "8 GPUs" in err
    assert run("sweep", trace)[0] == 2
    assert "Example" in run("sweep", "--help")[1]
