"""Collectives carried to other clusters."""

from dataclasses import replace

import polars as pl
import pytest

import tracekit as tk
from tests.codes import find_message, has_code, list_codes
from tests.jobs import gradient_step, recorded
from tests.jobs import job as jointly
from tracekit.comm import ClusterError, load_cluster
from tracekit.comm import predict as predict_collectives
from tracekit.comm.cluster import CLUSTER_FOLDER, compute_rate_spread
from tracekit.parallelism.layout import Layout, LayoutRequest
from tracekit.parallelism.process_groups import infer_layout_if_needed
from tracekit.prediction.collectives import retarget_collectives
from tracekit.prediction.source_cluster import identify_source_cluster
from tracekit.run import prepare_run
from tracekit.testing import A100, TraceBuilder
from tracekit.trace import Trace

MESSAGE = {"Collective name": "allreduce", "In msg nelems": 2**24, "Out msg nelems": 2**24, "dtype": "BFloat16"}
SOURCE = "8xa100-sxm-80gb"


def job(
    *durations_us: float, ranks: int = 8, sized: bool = True, device: dict[str, object] | None = A100, **launch: int
) -> TraceBuilder:
    """One all-reduce after another, of 32 MiB over all ranks, behind a kernel that the CPU launched."""
    builder = TraceBuilder(device)
    builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": ranks}
    builder.op("aten::mm", 0, 20, dims=[[512, 512]] * 2, types=["float"] * 2).kernel("sgemm", 15, 100, launch=5)
    args = {**MESSAGE, "Group size": ranks, "Process Group Ranks": str([*range(ranks)])} if sized else {}
    now, end = 30.0, 116.0
    for dur in durations_us:
        builder.op("record_param_comms", now, 10, **args)
        builder.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", end, dur, launch=now + 2, **launch)
        now, end = now + 20, end + dur + 1
    return builder


def model_us(cluster: str, ranks: int, bytes_: int = 2**25) -> float:
    row = {"collective": ["all_reduce"], "bytes": [bytes_], "ranks": [ranks], "dtype": ["bf16"]}
    return predict_collectives(pl.DataFrame(row), load_cluster(cluster))["time_us"].item()


def times(builder: TraceBuilder, cluster: str, **options: str) -> list[float]:
    return tk.predict(builder.load(), cluster=cluster, **options)[cluster].kernels["time_us"][1:].to_list()


@pytest.mark.parametrize("name", [SOURCE, "dgx-a100", "4x8xa100-sxm-80gb@hdr200"])
def test_the_cluster_of_the_trace_gives_the_measurement_back(name):
    """Also where more of the same nodes stand beside the one in use."""
    trace = job(400, 900).load()
    prediction = tk.predict(trace, cluster=name)[name]
    measured = tk.report(trace).source
    assert prediction.kernels["time_us"].to_list() == [100, 400, 400]
    assert prediction.kernels["method"].to_list() == ["measured"] * 3
    assert prediction.step.step_time_us == pytest.approx(measured.step_time_us)
    assert (prediction.low_us, prediction.high_us) == pytest.approx((measured.step_time_us,) * 2)


def test_transfer_takes_the_models_ratio_and_waiting_stays():
    factor = model_us("8xh100-sxm", 8) / model_us(SOURCE, 8)
    assert factor < 0.8
    # Of like collectives the shortest is all transfer: 500 of the 900 us were waiting, which is no kernel's time.
    assert times(job(400, 900), "8xh100-sxm") == pytest.approx([400 * factor] * 2)
    before, after = (tk.predict(job(400, 900).load(), cluster=name)[name].step for name in (SOURCE, "8xh100-sxm"))
    saved_us = before.kernel_time_us - after.kernel_time_us
    assert 2 * 400 * (1 - factor) < saved_us < 100 + 2 * 400 * (1 - factor)
    assert (before.waiting_us, after.waiting_us) == (500, 500)


def test_a_rank_that_never_came_last_transferred_no_longer_than_the_model_allows():
    """Both all-reduces waited; the interval holds the case that they didn't."""
    row = tk.predict(job(4000, 4000).load(), cluster="8xh100-sxm")["8xh100-sxm"].kernels.row(1, named=True)
    factor = model_us("8xh100-sxm", 8) / model_us(SOURCE, 8)
    assert 4000 - model_us(SOURCE, 8) < row["time_us"] < 4000
    assert row["low_us"] < 4000 * factor


def test_nodes_whose_gpus_reach_each_other_are_others():
    staged = load_cluster("8xrtx-4090")
    direct = retarget_collectives(prepare_run(job(400).load()), staged, replace(staged, peer_access=True))
    assert direct["method"].to_list() == ["transfer"]
    assert direct["time_us"].item() < 300


def test_collectives_keep_to_what_was_measured_on_the_target(tmp_path):
    lab = tmp_path / "lab.toml"
    entry = f'collective = "all_reduce"\nbytes = {2**25}\nranks = 8\ntime_us = {2 * model_us("dgx-a100", 8)}'
    lab.write_text((CLUSTER_FOLDER / "dgx-a100.toml").read_text() + f"\n[[measured]]\n{entry}\n")
    prediction = tk.predict(job(400).load(), cluster=str(lab))["lab"]
    assert prediction.kernels["time_us"][1] == pytest.approx(400 * 2, rel=0.1)
    assert find_message(prediction.notes, "cluster-measured").values["measurements"] == 1
    same = tk.predict(job(400).load(), cluster=str(lab), source_cluster=str(lab))["lab"]
    assert same.kernels["time_us"][1] == 400


def test_a_slower_network_between_the_ranks():
    factor = model_us("2x4xa100-sxm-80gb@eth25", 8) / model_us(SOURCE, 8)
    assert factor > 5
    prediction = tk.predict(job(400).load(), cluster="2x4xa100-sxm-80gb@eth25")["2x4xa100-sxm-80gb@eth25"]
    assert prediction.kernels["time_us"][1] == pytest.approx(400 * factor)
    assert prediction.step.exposed_comm_us == pytest.approx(400 * factor, rel=0.02)
    assert prediction.low_us < prediction.step.step_time_us < prediction.high_us


def test_the_source_cluster_can_be_given():
    factor = model_us("8xh100-sxm", 8) / model_us("2x4xa100-sxm-80gb@hdr200", 8)
    given = times(job(400), "8xh100-sxm", source_cluster="2x4xa100-sxm-80gb@hdr200")
    assert given == pytest.approx([400 * factor])


def test_ranks_beyond_one_node_sit_on_the_usual_nodes():
    prediction = tk.predict(job(400, ranks=16).load(), cluster="2xdgx-a100")["2xdgx-a100"]
    assert prediction.kernels["time_us"][1] == 400
    assert find_message(prediction.notes, "source-cluster-assumed").values["nodes"] == 2


def test_an_unknown_source_takes_the_model_and_says_so():
    prediction = tk.predict(job(400, device=None).load(), cluster="8xh100-sxm")["8xh100-sxm"]
    assert prediction.kernels["time_us"][1] == pytest.approx(model_us("8xh100-sxm", 8))
    assert prediction.kernels["method"][1] == "law"
    assert "source-cluster-unknown" in list_codes(prediction.notes)


def test_a_size_that_was_not_recorded_comes_from_the_launch_and_widens_the_interval():
    """Two of four channels of 512 threads in LL, 8 ranks: 64 to 96 KiB."""
    builder = job(25, sized=False, grid=[2, 1, 1], block=[512, 1, 1])
    builder.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 500, 300, grid=[4, 1, 1], block=[512, 1, 1])
    kernels = tk.predict(builder.load(), cluster="8xh100-sxm")["8xh100-sxm"].kernels
    row = kernels.row(1, named=True)
    least, most = (25 * model_us("8xh100-sxm", 8, size) / model_us(SOURCE, 8, size) for size in (2**16, 3 * 2**15))
    assert min(least, most) * 0.97 < row["time_us"] < max(least, most) * 1.03
    assert row["low_us"] < min(least, most)
    assert row["high_us"] > max(least, most)


def test_without_a_cluster_the_links_of_the_gpus_usual_nodes_are_assumed():
    """As over these links by name, in an interval at least 1.5 times as wide on both sides; said first."""
    alone = tk.predict(job(400).load(), gpu="h100-sxm")["h100-sxm"]
    named = tk.predict(job(400).load(), cluster="8xh100-sxm")["8xh100-sxm"]
    (time, low, high), (its_time, its_low, its_high) = (
        one.kernels.select("time_us", "low_us", "high_us").row(1) for one in (alone, named)
    )
    assert time == its_time == pytest.approx(400 * model_us("8xh100-sxm", 8) / model_us(SOURCE, 8))
    assert (low, high) == pytest.approx((its_low / 1.5, its_high * 1.5))
    assert alone.notes[0].code == "links-assumed"
    assert alone.notes[0].values["cluster"] == "8xh100-sxm"
    assert "collectives-kept" not in list_codes(alone.notes)
    assert (alone.cluster, alone.label, alone.rented) == (None, "h100-sxm", 8)


def test_beyond_one_node_the_network_of_the_usual_nodes_is_assumed():
    """Known nodes of H100s have between 100 and 400 Gbit/s for each GPU, so the interval holds a fourth of the rate."""
    alone = tk.predict(job(900, ranks=32).load(), gpu="h100-sxm")["h100-sxm"]
    assert find_message(alone.notes, "links-assumed").values["cluster"] == "4xdgx-h100"
    named = tk.predict(job(900, ranks=32).load(), cluster="4xdgx-h100")["4xdgx-h100"]
    spread = compute_rate_spread(load_cluster("4xdgx-h100"))
    assert spread >= 2
    assert alone.kernels["high_us"][1] == pytest.approx(named.kernels["high_us"][1] * spread)


@pytest.mark.parametrize(("gpu", "ranks"), [("rtx-3070", 8), ("rtx-4090", 16), ("a100-sxm-80gb", 8)])
def test_without_known_usual_links_and_on_the_traces_own_gpu_collectives_stay(gpu: str, ranks: int):
    prediction = tk.predict(job(400, ranks=ranks).load(), gpu=gpu)[gpu]
    assert prediction.kernels["time_us"][1] == 400
    assert "links-assumed" not in list_codes(prediction.notes)
    assert ("collectives-kept" in list_codes(prediction.notes)) == (gpu != "a100-sxm-80gb")


def test_assumed_links_leave_the_measured_job_without_a_cluster():
    predictions = tk.predict(job(400).load(), gpu="h100-sxm", price={"a100-sxm-80gb": 1.0, "h100-sxm": 2.0})
    assert predictions.cluster is None
    assert predictions["h100-sxm"].price == 2.0


GENERIC = "ncclDevKernel_Generic_2(ncclDevKernelArgsStorage<4096ul>)"


def test_a_generic_kernel_is_predicted_as_the_collective_that_its_op_names():
    """32 MiB in bf16 over 8 ranks, as by a kernel that names its all-reduce."""
    builder = TraceBuilder()
    builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 8}
    builder.op("aten::mm", 0, 20, dims=[[512, 512]] * 2, types=["float"] * 2).kernel("sgemm", 15, 100, launch=5)
    builder.op("vllm::all_reduce", 30, 10, dims=[[4096, 4096], []], types=["c10::BFloat16", ""])
    builder.kernel(GENERIC, 116, 400, launch=32)
    assert times(builder, "8xh100-sxm") == pytest.approx(times(job(400), "8xh100-sxm"))


def test_a_collective_of_unknown_size_that_does_not_fit_is_refused():
    builder = TraceBuilder().kernel("ncclDevKernel_Whatever", 10, 50, launch=0)
    builder.metadata["distributedInfo"] = {"rank": 0, "world_size": 16}
    with pytest.raises(ClusterError, match=r"16 ranks = .* don't fit on 8xh100-sxm"):
        tk.predict(builder.load(), cluster="8xh100-sxm")


@pytest.mark.parametrize("size", [0, -1])
def test_a_group_of_no_ranks_is_taken_for_all_of_them(size):
    args = recorded() | {"Group size": size, "Process Group Ranks": ""}
    builder = TraceBuilder().kernel("ncclDevKernel_AllReduce", 10, 50, launch=0, **args)
    builder.metadata["distributedInfo"] = {"rank": 0, "world_size": 8}
    assert infer_layout_if_needed(prepare_run(builder.load()).program, LayoutRequest()) == Layout(tp=8)


def test_what_does_not_fit_or_contradicts_is_refused():
    trace = job(400).load()
    with pytest.raises(ClusterError, match=r"tp 8 don't fit on 4xh100-sxm, which has 4 GPUs"):
        tk.predict(trace, cluster="4xh100-sxm")
    with pytest.raises(ClusterError, match=r"64 ranks = dp 8 x tp 8 don't fit .*world_size= 8"):
        tk.predict(trace, cluster="12xh100-sxm", dp=8)
    with pytest.raises(ClusterError, check=has_code("cluster-smaller-than-replica")):
        tk.predict(trace, cluster="4xh100-sxm", dp=8)
    with pytest.raises(ClusterError, check=has_code("source-cluster-of-other-gpu")):
        tk.predict(trace, cluster=SOURCE, source_cluster="8xh100-sxm")
    with pytest.raises(ClusterError, check=has_code("source-cluster-too-small")):
        tk.predict(trace, cluster=SOURCE, source_cluster="4xa100-sxm-80gb")


def test_with_all_ranks_read_a_slow_transfer_is_no_waiting():
    """Both ranks take part from 112 on; the second came last. Of 388 us the model would allow 15."""
    message = {"kind": "allreduce", "nelems": 1000}
    early, late = gradient_step(50, 500, **recorded(**message)), gradient_step(100, 500, **recorded(**message))
    prediction = tk.predict(jointly(early, late), cluster="8xh100-sxm")["8xh100-sxm"]
    factor = model_us("8xh100-sxm", 2, 4000) / model_us(SOURCE, 2, 4000)
    times = prediction.kernels["time_us"].to_list()
    assert (times[1], times[3]) == pytest.approx((388 * factor,) * 2)


def on_hosts(*hosts: str) -> Trace:
    """One all-reduce over as many ranks, whose files name their hosts."""
    ranks = "[" + ",".join(map(str, range(len(hosts)))) + "]"
    joined = jointly(*(gradient_step(50, 500, **recorded(ranks=ranks)) for _ in hosts))
    named = [
        replace(rank, source=f"/traces/{host}_{100 + rank.rank}.1700000000000.pt.trace.json.gz")
        for rank, host in zip(joined.ranks, hosts, strict=True)
    ]
    return replace(joined, ranks=tuple(named))


def test_files_that_name_hosts_tell_the_nodes():
    assert identify_source_cluster(prepare_run(on_hosts("a", "a"))).cluster == load_cluster(SOURCE)
    apart = identify_source_cluster(prepare_run(on_hosts("a", "b")))
    assert apart.note is not None
    assert (apart.note.code, apart.note.values["hosts"]) == ("source-cluster-from-hosts", 2)
    assert (apart.cluster.nodes, apart.cluster.gpus_per_node, apart.cluster.network_gbps) == (2, 1, 25)


def test_the_source_cluster_names_the_gpu_of_a_trace_that_does_not():
    prediction = tk.predict(job(400, device=None).load(), cluster="8xh100-sxm", source_cluster=SOURCE)["8xh100-sxm"]
    factor = model_us("8xh100-sxm", 8) / model_us(SOURCE, 8)
    assert prediction.kernels["time_us"][1] == pytest.approx(400 * factor)
    assert prediction.kernels["method"][0] == "transfer"
    assert "source-gpu-unknown" not in list_codes(prediction.notes)
