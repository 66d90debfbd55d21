"""The job of a trace on other numbers of ranks."""

import polars as pl
import pytest

import tracekit as tk
from tests.asking import predict
from tests.codes import find_message, has_code
from tests.jobs import gradient_step, job
from tracekit.comm import ClusterError, load_cluster
from tracekit.comm import predict as predict_collectives
from tracekit.errors import RequestError
from tracekit.messages.layouts import LAYERS_UNREPEATED
from tracekit.parallelism.collective_calls import list_collectives
from tracekit.parallelism.layout import Layout, LayoutError, LayoutRequest, apply_request
from tracekit.parallelism.process_groups import infer_layout
from tracekit.program import Program
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

LOOKUP = "fbgemm::split_embedding_codegen_lookup_adagrad_function"
SOURCE = "8xa100-sxm-80gb"
POD = "8x8xa100-sxm-80gb@hdr200"
GRADIENTS = 2**24
NAMES = {"allreduce": "AllReduce_Sum_bf16", "_allgather_base": "AllGather", "_reduce_scatter_base": "ReduceScatter"}


class Job:
    """A training step with collectives of its own choice, one after the other."""

    def __init__(self, world: int = 8, *, trains: bool = True) -> None:
        self.builder = TraceBuilder()
        self.builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": world}
        self.world, self.now, self.end = world, 30.0, 116.0
        backward = "autograd::engine::evaluate_function: MmBackward0" if trains else "aten::linear"
        self.builder.op(backward, 0, 25).op("aten::mm", 1, 20, dims=[[512, 512]] * 2, types=["float"] * 2)
        self.builder.kernel("sgemm", 15, 100, launch=5)

    def sends(self, kind: str, elements: int, dur: float, ranks: list[int] | None = None, called: str = "") -> "Job":
        ranks = [*range(self.world)] if ranks is None else ranks
        args = {"Collective name": kind, "In msg nelems": elements, "Out msg nelems": elements, "dtype": "BFloat16"}
        shown = str(ranks) if len(ranks) <= 30 else f"[{', '.join(map(str, ranks[:30]))}, ...]"  # as PyTorch does
        args |= {"Group size": len(ranks), "Process Group Ranks": shown, "Process Group Name": str(ranks[1:])}
        if called:
            args["Process Group Description"] = called
        self.builder.op("record_param_comms", self.now, 10, **args)
        return self.runs(f"ncclDevKernel_{NAMES.get(kind, 'SendRecv')}_RING_LL", dur)

    def optimizes(self, parameters: int, dur: float) -> "Job":
        dims = [[[parameters]]] * 4
        self.builder.op("aten::_fused_adamw_", self.now, 10, dims=dims, types=["TensorList"] * 4)
        return self.runs("multi_tensor_apply_kernel<FusedAdam>", dur)

    def runs(self, kernel: str, dur: float) -> "Job":
        self.builder.kernel(kernel, self.end, dur, launch=self.now + 2)
        self.now, self.end = self.now + 20, self.end + dur + 1
        return self

    def on(self, cluster: str, **change: int) -> list[float]:
        """Kernel times behind the product."""
        kernels = tk.predict(self.builder.load(), cluster=cluster, **change)[cluster].kernels
        return kernels["time_us"][1:].to_list()

    def layout(self) -> Layout:
        return infer_layout(prepare_run(self.builder.load()).program)


def model_us(kind: str, cluster: str, ranks: int, bytes_: int = 2 * GRADIENTS, nodes: int | None = None) -> float:
    row = {"collective": [kind], "bytes": [bytes_], "ranks": [ranks], "dtype": ["bf16"]}
    if nodes:
        row["nodes"] = [nodes]
    return predict_collectives(pl.DataFrame(row), load_cluster(cluster))["time_us"].item()


def test_ranks_of_a_layer_lie_next_to_each_other_and_stages_farthest_apart():
    apart = Layout(dp=8, tp=2, pp=4)
    assert [apart.get_group_stride(role) for role in ("tp", "dp", "pp")] == [1, 2, 16]
    assert [apart.get_group_size(role) for role in ("tp", "dp", "pp")] == [2, 8, 4]
    shared = Layout(dp=8, ep=4)
    assert [(shared.get_group_size(role), shared.get_group_stride(role)) for role in ("ep", "edp")] == [(4, 1), (2, 4)]


def test_data_parallel_gradients_keep_their_bytes():
    factor = model_us("all_reduce", POD, 64) / model_us("all_reduce", SOURCE, 8)
    assert factor > 1.5
    assert Job().sends("allreduce", GRADIENTS, 300).on(POD, world_size=64) == pytest.approx([300 * factor])
    assert Job().sends("allreduce", GRADIENTS, 300).on(POD, dp=64) == pytest.approx([300 * factor])


def test_groups_so_large_that_their_ranks_are_not_all_listed():
    job = Job(128).sends("allreduce", GRADIENTS, 300, [*range(0, 128, 2)])
    calls = list_collectives(prepare_run(job.builder.load()).kernels, 128)
    assert calls.select("ranks", "stride").row(0) == (64, 2)
    assert job.on("16x8xh100-sxm@ndr400") > [0]


@pytest.mark.parametrize(
    ("kernel", "custom"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", False),
        ("ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)", False),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>(vllm::RankData*)", True),
        ("void (anonymous namespace)::all_reduce_two_shot_kernel<__nv_bfloat16, 4u, true>(AllReduceData const*)", True),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(AllReduceFusion)1>", True),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", False),
    ],
)
def test_all_reduces_of_a_serving_engine_are_told_from_nccls(kernel: str, custom: bool):
    builder = TraceBuilder().op("sglang::forward", 0, 25).kernel(kernel, 15, 100, launch=5)
    assert list_collectives(prepare_run(builder.load()).kernels, 4)["custom"].to_list() == [custom]


@pytest.mark.parametrize(
    ("kernel", "exchange"),
    [
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)", "deepep_normal_dispatch"),
        ("void deep_ep::internode_ll::combine<true, 7168, 11>(void*, void*)", "deepep_low_latency_combine"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", None),
    ],
)
def test_exchanges_between_experts_are_told_from_nccls(kernel: str, exchange: str | None):
    builder = TraceBuilder().op("moe::dispatch", 0, 25).kernel(kernel, 15, 100, launch=5)
    assert list_collectives(prepare_run(builder.load()).kernels, 8)["exchange"].to_list() == [exchange]


def test_a_serving_engine_that_copies_lists_of_tensors_trains_nothing():
    """SGLang copies the inputs of its graphs so, by the kernel that optimizers run too."""
    job = Job(4, trains=False)
    job.builder.op("aten::_foreach_copy_", 26, 4)
    copy = (
        "multi_tensor_apply_kernel<TensorListMetadata<2>, UnaryOpFunctor<long, 2, 1, 1>, at::native::Copy<long, long> >"
    )
    job.builder.kernel(copy, 120, 3, launch=28)
    job.end = 124.0
    assert infer_layout(prepare_run(job.sends("allreduce", 2**20, 30).builder.load()).program) == Layout(dp=1, tp=4)


def test_one_rank_neither_waits_nor_transfers():
    assert Job().sends("allreduce", GRADIENTS, 300).sends("allreduce", GRADIENTS, 700).on(SOURCE, world_size=1) == [
        0,
        0,
    ]


def test_one_rank_does_not_wait_for_others_either():
    """600 of the second all-reduce's 900 us were waiting: gone from the step."""
    job = Job().sends("allreduce", GRADIENTS, 300).sends("allreduce", GRADIENTS, 900)
    job.builder.call("cudaDeviceSynchronize", 80, 1242)
    trace = job.builder.load()
    alone = tk.predict(trace, cluster=SOURCE, world_size=1)[SOURCE]
    assert tk.report(trace).source.step_time_us - alone.step.step_time_us == pytest.approx(1200, abs=5)


def test_more_ranks_are_never_faster():
    job = Job().sends("allreduce", GRADIENTS, 300)
    times = [job.on(POD, world_size=ranks)[0] for ranks in (1, 2, 4, 8, 16, 32, 64)]
    assert times == sorted(times)


def test_sharded_parameters_gather_the_same_whole_and_optimize_a_shard():
    job = Job().sends("_allgather_base", GRADIENTS, 150).sends("_reduce_scatter_base", GRADIENTS, 150)
    job.optimizes(2**26, 1000)
    assert job.layout() == Layout(dp=8, sharded=True)
    gather, scatter, adam = job.on(POD, world_size=32)
    for found, kind in ((gather, "all_gather"), (scatter, "reduce_scatter")):
        assert found == pytest.approx(150 * model_us(kind, POD, 32) / model_us(kind, SOURCE, 8))
    assert adam == pytest.approx(1000 * 8 / 32, rel=0.1)


def test_gathers_beside_whole_gradients_grow_with_the_ranks():
    """Not parameters then: each rank brings its part."""
    job = Job().sends("allreduce", 4 * GRADIENTS, 900).sends("_allgather_base", GRADIENTS, 150)
    whole = model_us("all_gather", POD, 32, 4 * 2 * GRADIENTS)
    assert job.on(POD, world_size=32)[1] == pytest.approx(150 * whole / model_us("all_gather", SOURCE, 8))


@pytest.mark.parametrize(("op", "text"), [("aten::mm", "ep 8"), (LOOKUP, "tables over 8")])
def test_ranks_that_exchange_rows_of_tables_split_no_experts(op: str, text: str) -> None:
    job = Job()
    job.builder.op(op, 26, 4).kernel("embedding_kernel", 120, 3, launch=28)
    job.end = 124.0
    layout = job.sends("all_to_all", GRADIENTS, 150).layout()
    assert str(layout) == f"8 ranks = dp 8, {text}"
    assert str(apply_request(layout, LayoutRequest(world_size=16))) == str(layout).replace("8", "16")


def test_an_all_to_all_keeps_each_ranks_bytes():
    job = Job().sends("all_to_all", GRADIENTS, 150)
    assert job.layout() == Layout(dp=8, ep=8)
    factor = model_us("all_to_all", POD, 64) / model_us("all_to_all", SOURCE, 8)
    assert job.on(POD, world_size=64) == pytest.approx([150 * factor])


def test_deepep_is_expert_parallel_over_all_ranks():
    job = Job(16).runs("void deep_ep::internode::dispatch<false, 2, true>(int4*, float*)", 300)
    assert job.runs("void deep_ep::internode::combine<false, 2, __nv_bfloat16>(int4*)", 600).layout() == Layout(
        dp=16, ep=16
    )


def test_groups_are_told_by_their_names_and_keep_their_place():
    """Tensor parallel over neighbours; the gradients cross the nodes."""
    job = Job(16).sends("allreduce", GRADIENTS, 200, [*range(8)], "mesh_tp")
    job.sends("allreduce", GRADIENTS, 900, [0, 8], "mesh_dp")
    assert job.layout() == Layout(dp=2, tp=8)
    within, across = job.on(POD, world_size=64)
    assert within == 200
    factor = model_us("all_reduce", POD, 8, nodes=8) / model_us("all_reduce", POD, 2, nodes=2)
    assert across == pytest.approx(900 * factor)


def test_an_inference_that_adds_up_activations_is_tensor_parallel():
    assert Job(trains=False).sends("allreduce", GRADIENTS, 300).layout() == Layout(tp=8)


def test_data_parallelism_takes_what_is_left():
    assert apply_request(Layout(4, 2), LayoutRequest(world_size=64)) == Layout(32, 2)
    assert apply_request(Layout(4, 2), LayoutRequest(dp=3)) == Layout(3, 2)
    assert apply_request(Layout(8, ep=8), LayoutRequest(dp=64)) == Layout(64, ep=64)
    assert apply_request(Layout(8, ep=4), LayoutRequest(dp=64)) == Layout(64, ep=4)
    assert str(Layout(8, 2, sharded=True)) == "16 ranks = dp 8 (sharded) x tp 2"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"world_size": 9, "tp": 2}, "ranks-dont-factor"),
        ({"ep": 8}, "recorded-ranks-without-expert-parallel"),
        ({"pp": 2}, "no-training"),
    ],
)
def test_a_layout_that_is_impossible_or_unknown_is_refused(change, code):
    with pytest.raises(LayoutError, check=has_code(code)):
        Job().sends("allreduce", GRADIENTS, 300).on(POD, **change)


@pytest.mark.parametrize("batch", [0.0, 1e300, -2, "two", "maximum"])
def test_batches_that_nobody_can_mean_are_refused(batch):
    with pytest.raises(RequestError, check=has_code("batch-factor-malformed")):
        tk.predict(TraceBuilder().kernel("sgemm", 5, 100, launch=0).load(), gpu="l4", batch=batch)


@pytest.mark.parametrize(
    "change", [{"dp": 0}, {"tp": -1}, {"world_size": 0}, {"dp": 2.5}, {"tp": "4"}, {"batch": float("nan")}]
)
def test_numbers_that_nobody_can_mean_are_refused(change):
    (name,) = change
    with pytest.raises(RequestError) as refused:
        tk.predict(TraceBuilder().kernel("sgemm", 5, 100, launch=0).load(), gpu="l4", **change)
    assert refused.value.code == "option-value"
    assert refused.value.catalogue_message.values["option"] == name.replace("_", " ")


def test_experts_are_shared_out_over_a_divisor_of_the_ranks():
    with pytest.raises(LayoutError, check=has_code("expert-parallel-indivisible")):
        Job().sends("all_to_all", GRADIENTS, 150).on(POD, ep=3)


def test_copies_of_one_rank_need_its_gradients():
    with pytest.raises(LayoutError, check=has_code("gradients-unknown")):
        Job(1).on(POD, world_size=8)


def test_more_ranks_need_a_cluster_and_its_gpus():
    job = Job().sends("allreduce", GRADIENTS, 300)
    with pytest.raises(ClusterError, check=has_code("cluster-too-small")):
        job.on(SOURCE, world_size=16)
    with pytest.raises(LayoutError, match=r"Name a cluster in its place, such as cluster= 2x8xh100-sxm@ndr400"):
        tk.predict(job.builder.load(), gpu="h100-sxm", world_size=16)


def test_targets_that_can_not_hold_the_layout_leave_the_others_predicted():
    trace = Job().sends("allreduce", GRADIENTS, 300).builder.load()
    found = tk.predict(trace, gpu="l40s", cluster=["8xh100-sxm", "2x8xh100-sxm@ndr400"], world_size=16)
    alone = tk.predict(trace, cluster="2x8xh100-sxm@ndr400", world_size=16)
    assert [*found] == ["2x8xh100-sxm@ndr400"]
    assert found.targets[0].step == alone.targets[0].step
    assert [one.label for one in found.refused] == ["l40s", "8xh100-sxm"]
    with pytest.raises(KeyError, match=r"Not predicted on 8xh100-sxm: .*which has 8 GPUs"):
        found["8xh100-sxm"]
    report = tk.report(found)
    assert (report.warnings[0].code, report.warnings[0].values["target"]) == ("target-not-predicted", "l40s")
    assert "Not predicted on 8xh100-sxm" in report.to_html()
    with pytest.raises(ClusterError, match=r"^4xh100-sxm: .*don't fit on .* 8xh100-sxm: .*don't fit on"):
        tk.predict(trace, cluster=["4xh100-sxm", "8xh100-sxm"], world_size=16)


def test_a_larger_batch_is_not_said_to_be_kept():
    trace = Job().sends("allreduce", GRADIENTS, 300).builder.load()
    for batch, kept in ((None, True), (2, False)):
        (found,) = tk.predict(trace, cluster="2x8xh100-sxm@ndr400", world_size=16, batch=batch).targets
        note = find_message(found.notes, "batch-per-rank-kept" if kept else "batch-per-rank-equal")
        assert note.values["replicas"] == 16


def test_edits_and_refusals_go_together():
    trace = Job().sends("allreduce", GRADIENTS, 300).builder.load()
    found = tk.predict(trace, cluster=["8xh100-sxm", "2x8xh100-sxm@ndr400"], world_size=16, host_speed=2)
    assert [one.label for one in found.refused] == ["8xh100-sxm"]
    assert found.step_times_after_edits == ((found.targets[0].step.step_time_us,),)


def test_an_edit_on_the_way_with_which_nothing_can_be_predicted_leaves_a_blank(monkeypatch):
    def refuse_after_first_edit(program: Program, request: LayoutRequest) -> Layout | None:
        if len(program.edits) == 1:
            raise LayoutError(LAYERS_UNREPEATED())
        return infer_layout(program)

    monkeypatch.setattr("tracekit.prediction.predict_run.infer_layout_if_needed", refuse_after_first_edit)
    run = prepare_run(Job().sends("allreduce", GRADIENTS, 300).builder.load())
    found = predict(run, ["h100-sxm"], what_if=["host-speed(2)", "scale(family=collective, 0.5)"])
    assert found.step_times_after_edits == ((None,), (found["h100-sxm"].step.step_time_us,))


def test_groups_that_do_not_add_up_are_no_layout_but_no_obstacle():
    job = Job(12).sends("allreduce", GRADIENTS, 300, [*range(5)], "mesh_tp")
    with pytest.raises(LayoutError, check=has_code("groups-contradict-ranks")):
        job.on("2x8xa100-sxm-80gb@hdr200", world_size=16)
    assert job.on("2x8xa100-sxm-80gb@hdr200") == [300]


def test_ranks_that_are_all_read_part_too():
    """Rank 0 waited 100 us for rank 1's product; alone, it doesn't, and the step ends with the slower product."""
    ranks = [gradient_step(gemm=gemm, end=240) for gemm in (100, 200)]
    trace = job(*(rank.op("autograd::engine::evaluate_function: x", 0, 1) for rank in ranks))
    alone = tk.predict(trace, cluster=SOURCE, world_size=1)[SOURCE]
    both = tk.predict(trace, cluster=SOURCE)[SOURCE]
    assert both.step.waiting_us > 25
    assert alone.step.waiting_us == 0
    assert both.step.step_time_us - alone.step.step_time_us == pytest.approx(28, abs=3)
    assert alone.step.kernel_time_us == pytest.approx(150)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"pp": 4}, "recorded-stages-fixed"),
        ({"micro_batches": 8}, "recorded-schedule-fixed"),
    ],
)
def test_stages_that_were_recorded_are_shown_and_stay(change, code):
    job = Job(8).sends("send", GRADIENTS, 100, [0, 4], "mesh_pp").sends("allreduce", GRADIENTS, 300, [0, 1, 2, 3])
    assert job.layout() == Layout(dp=4, pp=2)
    assert str(job.layout()) == "8 ranks = dp 4 x pp 2"
    more = job.on(POD, world_size=64)
    assert more[1] > 300
    with pytest.raises(LayoutError, check=has_code(code)):
        job.on(POD, **change)


def test_a_stage_is_a_job_without_stages() -> None:
    whole = Layout(dp=2, tp=4, pp=8, micro_batches=16, chunks=2, zero_bubble=True, batch=0.5)
    assert whole.world_size == 64
    assert whole.stage_layout == Layout(dp=2, tp=4, batch=0.5)
