"""``tracekit predict`` on clusters."""

import json

import pytest

from tracekit.testing import TraceBuilder


def test_clusters_and_gpus_in_one_answer(run, tmp_path):
    message = {"Collective name": "allreduce", "In msg nelems": 2**24, "dtype": "BFloat16", "Group size": 8}
    builder = TraceBuilder().op("record_param_comms", 0, 10, **message)
    builder.metadata["distributedInfo"] = {"rank": 0, "world_size": 8}
    path = builder.kernel("ncclDevKernel_AllReduce", 20, 400, launch=2).save(tmp_path / "trace.json")
    code, out, err = run("predict", path, "--gpu", "h100-sxm", "--gpu", "l40s", "--cluster", "8xh100-sxm", "--json")
    assert (code, err) == (0, "")
    assert {(t["gpu"], t["cluster"]) for t in json.loads(out)["targets"]} == {
        ("l40s", None), ("h100-sxm", "8xh100-sxm"),
    }  # fmt: skip
    assert "8xh100-sxm" in run("predict", path, "--cluster", "8xh100-sxm")[1]
    assert run("predict", path)[0] == 2


def test_strict_fails_where_too_little_is_modelled_and_answers_all_the_same(run, trace, tmp_path):
    assert run("predict", trace, "--gpu", "h100-sxm", "--strict")[::2] == (0, "")
    shapeless = TraceBuilder().op("aten::mm", 0, 30).kernel("ampere_sgemm_128x64_nn", 20, 100, launch=10)
    code, out, err = run("predict", shapeless.save(tmp_path / "t.json"), "--gpu", "l40s", "--strict", "--json")
    assert (code, err) == (4, "tracekit: 0.0 % of kernel time is modelled for l40s, less than the 95 % of --strict\n")
    assert json.loads(out)["targets"][0]["coverage"]["modelled"] == 0


def test_prices_and_layouts(run, tmp_path):
    message = {"Collective name": "allreduce", "In msg nelems": 2**24, "dtype": "BFloat16", "Group size": 8}
    builder = TraceBuilder().op("autograd::engine::x", 0, 1).op("record_param_comms", 2, 10, **message)
    builder.metadata["distributedInfo"] = {"rank": 0, "world_size": 8}
    path = builder.kernel("ncclDevKernel_AllReduce", 20, 400, launch=4).save(tmp_path / "trace.json")
    to = ("--cluster", "4x8xh100-sxm@ndr400", "--world-size", 32)
    code, out, _ = run("predict", path, *to, "--price", "h100-sxm=2.5", "--json")
    assert code == 0
    (target,) = json.loads(out)["targets"]
    layout = {"world_size": 32, "dp": 32, "tp": 1, "pp": 1, "ep": 1, "sharded": False}
    unchanged = {"micro_batches": None, "chunks": 1, "batch": 1.0, "zero_bubble": False, "zero": 0, "context": None}
    assert target["layout"] == layout | unchanged | {"splits_tables": False}
    assert target["dollars_per_1000_steps"] == pytest.approx(2.5 * 32 * target["step_time_us"] / 3.6e6)
    screen = " ".join(run("predict", path, *to, "--price", "h100-sxm=2.5")[1].split())
    assert "throughput" in screen
    assert "$/1k steps" in screen
    assert run("predict", path, *to, "--price", "cheap")[0] == 2
    code, _, err = run("predict", path, *to, "--price", "h100-sxm=2.5", "--price", "h100-sxm=3")
    assert (code, "h100-sxm has two prices" in err) == (2, True)
    code, _, err = run("predict", path, "--gpu", "p5")
    assert (code, "p5 is a cluster, no GPU. Its GPU is h100-sxm" in err) == (1, True)
    warnings = json.loads(run("predict", path, *to, "--price", "p5=98", "--json")[1])["warnings"]
    assert "price-unused" in [warning["code"] for warning in warnings]
    code, _, err = run("predict", path, "--cluster", "8xh100-sxm", "--tp", 2)
    assert (code, err.count("\n")) == (1, 1)
    code, out, _ = run("predict", path, *to, "--cluster", "8xh100-sxm", "--gpu", "l40s", "--json")
    told = json.loads(out)
    assert (code, [one["target"] for one in told["refused"]]) == (0, ["l40s", "8xh100-sxm"])
    assert "--cluster 4x8xl40s@ndr400" in told["refused"][0]["hint"]
    assert told["targets"][0]["step_time_us"] == target["step_time_us"]
    screen = " ".join(run("predict", path, *to, "--cluster", "8xh100-sxm")[1].split())
    assert "warning: Not predicted on 8xh100-sxm: 32 ranks = dp 32 don't fit on 8xh100-sxm, which has 8 GPUs" in screen
