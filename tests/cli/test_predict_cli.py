"""``tracekit predict`` on clusters."""

import json

from tracekit.testing import TraceBuilder


def test_clusters_and_gpus_in_one_answer(run, tmp_path):
    message = {"Collective name": "allreduce", "In msg nelems": 2**24, "dtype": "BFloat16", "Group size": 8}
    builder = TraceBuilder().op("record_param_comms", 0, 10, **message)
    builder.metadata["distributedInfo"] = {"rank": 0, "world_size": 8}
    path = builder.kernel("ncclDevKernel_AllReduce", 20, 400, launch=2).save(tmp_path / "trace.json")
    code, out, err = run("predict", path, "--gpu", "h100-sxm", "--gpu", "l40s", "--cluster", "8xh100-sxm", "--json")
    assert (code, err) == (0, "")
    assert [(t["gpu"], t["cluster"]) for t in json.loads(out)["targets"]] == [
        ("l40s", None), ("h100-sxm", "8xh100-sxm"),
    ]  # fmt: skip
    assert "8xh100-sxm" in run("predict", path, "--cluster", "8xh100-sxm")[1]
    assert run("predict", path)[0] == 2
