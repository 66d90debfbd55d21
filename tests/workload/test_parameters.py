"""Optimizers and all-reduces whose tensor lists weren't recorded."""

import pytest

from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

ADDCMUL = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "TensorListMetadata<3>, at::native::(anonymous namespace)::PointwiseOpScalarFunctor<float, 3, 3, 0>>"
)
ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4>>"
)
DIV = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "TensorListScalarListMetadata<float, 1>, at::native::(anonymous namespace)::BinaryOpScalarListFunctor<float, 1>>"
)


def gradients(builder, *shapes):
    for index, shape in enumerate(shapes):
        builder.op("torch::autograd::AccumulateGrad", 10 * index, 5, dims=[shape], types=["float"])
    return builder


def launched(builder, op, kernel, blocks):
    builder.op(op, 100, 50, dims=[[], []], types=["TensorList", "ScalarList"])
    builder.kernel(kernel, 200, 30, launch=110, grid=[blocks, 1, 1], block=[512, 1, 1])
    return build_kernel_table(builder.load().rank()).row(0, named=True)["bytes"]


def test_an_optimizer_goes_over_the_parameters_that_its_grid_fits():
    # 100 000 elements are two chunks of 65 536, 300 are one.
    sizes = [100, 1000], [300]
    assert launched(gradients(TraceBuilder(), *sizes), "aten::_foreach_div_", DIV, 3) == 2 * 4 * 100_300
    assert launched(gradients(TraceBuilder(), *sizes), "aten::_foreach_addcmul_", ADDCMUL, 3) == 3 * 4 * 100_300
    assert launched(gradients(TraceBuilder(), *sizes), "aten::_fused_adamw_", ADAM, 3) == 7 * 4 * 100_300


def test_another_grid_goes_over_something_else():
    # Two full chunks then, read by a functor that doesn't say what it writes.
    assert launched(gradients(TraceBuilder(), [100, 1000], [300]), "aten::_foreach_div_", DIV, 2) == 2 * 65_536 * 4


def all_reduce(builder, dims, types, name="ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"):
    builder.op("c10d::allreduce_", 100, 50, dims=dims, types=types)
    builder.op("record_param_comms", 105, 30, dims=[[], []], types=["TensorList", "Scalar"])
    return build_kernel_table(builder.kernel(name, 200, 30, launch=110).load().rank()).row(0, named=True)


def test_a_bucket_holds_the_gradients_since_the_last_one():
    row = all_reduce(gradients(TraceBuilder(), [100, 10], [24]), [[], []], ["TensorList", ""])
    assert (row["collective"], row["bytes"], row["work_from"]) == ("all_reduce", 4 * 1024, "gradients")


def test_buckets_that_their_grids_contradict_are_not_believed():
    builder = TraceBuilder()
    for start, elements, blocks in ((0, 100_000, 12), (1000, 90_000, 1), (2000, 20_000, 12)):
        builder.op("torch::autograd::AccumulateGrad", start, 5, dims=[[elements]], types=["float"])
        builder.op("c10d::allreduce_", start + 10, 50, dims=[[], []], types=["TensorList", ""])
        grid = {"grid": [blocks, 1, 1], "block": [640, 1, 1]}
        builder.kernel("ncclKernel_AllReduce_RING_LL_Sum_float", start + 70, 30, launch=start + 20, **grid)
    assert build_kernel_table(builder.load().rank())["bytes"].to_list() == [None] * 3


def test_the_recorded_buffer_wins():
    row = all_reduce(gradients(TraceBuilder(), [100, 10]), [[[64], [32]], []], ["TensorList", ""])
    assert row["bytes"] == 4 * 96


def test_the_kernel_tells_the_type_of_a_list_where_it_adds_up():
    dims, types = [[[64], [32]], []], ["TensorList", ""]
    assert all_reduce(TraceBuilder(), dims, types, "ncclDevKernel_AllReduce_Sum_f16_RING_LL")["bytes"] == 2 * 96
    builder = TraceBuilder().op("c10d::_allgather_base_", 100, 50, dims=[[[64]], [[32]], []], types=["TensorList"] * 3)
    gather = builder.kernel("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", 200, 30, launch=110)
    assert build_kernel_table(gather.load().rank())["bytes"].item() == 4 * 64


def test_without_gradients_only_the_kind_is_known():
    row = all_reduce(TraceBuilder(), [[], []], ["TensorList", ""])
    assert (row["collective"], row["bytes"], row["work_from"]) == ("all_reduce", None, None)


def test_a_functional_all_gather_has_the_size_of_its_output_and_the_type_of_its_input():
    builder = TraceBuilder().op("_c10d_functional::all_gather_into_tensor", 0, 60, dims=[[32, 8], [], []],
                                types=["c10::BFloat16", "Scalar", ""])  # fmt: skip
    lists = {"dims": [[[64, 8]], [[32, 8]], []], "types": ["TensorList", "TensorList", ""]}
    builder.op("c10d::allgather_into_tensor_coalesced_", 5, 50, **lists)
    kernel = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
    row = build_kernel_table(builder.kernel(kernel, 80, 30, launch=10).load().rank()).row(0, named=True)
    assert (row["collective"], row["bytes"]) == ("all_gather", 2 * 64 * 8)


@pytest.mark.parametrize("asker", ["c10d::allgather_", "aten::copy_"])
def test_what_one_rank_sends_is_not_the_whole_buffer_of_an_all_gather(asker):
    builder = TraceBuilder().op(asker, 0, 50, dims=[[], [[1000]], []], types=["", "TensorList", ""])
    builder.op("record_param_comms", 5, 40, dims=[[[1000]]], types=["TensorList"])
    kernel = "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
    row = build_kernel_table(builder.kernel(kernel, 60, 30, launch=10).load().rank()).row(0, named=True)
    assert (row["collective"], row["bytes"]) == ("all_gather", None)


def test_a_list_of_tensors_alone_is_taken_for_floats():
    lists = {"dims": [[[32, 8]], [[64, 8]], [], []], "types": ["TensorList", "TensorList", "", ""]}
    builder = TraceBuilder().op("c10d::reduce_scatter_tensor_coalesced_", 5, 50, **lists)
    kernel = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
    row = build_kernel_table(builder.kernel(kernel, 80, 30, launch=10).load().rank()).row(0, named=True)
    assert (row["collective"], row["bytes"]) == ("reduce_scatter", 4 * 64 * 8)


def test_a_reduce_scatter_sends_its_second_input():
    builder = TraceBuilder().op("c10d::_reduce_scatter_base_", 0, 50, dims=[[16], [64]], types=["float", "float"])
    kernel = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
    row = build_kernel_table(builder.kernel(kernel, 80, 30, launch=10).load().rank()).row(0, named=True)
    assert (row["collective"], row["bytes"]) == ("reduce_scatter", 4 * 64)


@pytest.mark.parametrize(
    "name",
    [
        "EpDispatchCopyToStaging_bf16",
        "EpCombineAll_bf16",
        "void mori::moe::ConvertDispatchOutputKernel(mori::moe::EpDispatchCombineArgs)",
    ],
)
def test_what_experts_do_on_their_own_gpu_is_no_collective(name):
    row = build_kernel_table(TraceBuilder().kernel(name, 60, 30, launch=10).load().rank()).row(0, named=True)
    assert row["family"] != "collective"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("void uccl::intranode::dispatch<8>(int4*)", "all_to_all"),
        ("EpCombineSync_bf16", "all_to_all"),
        ("a2a_combine_recv_kernel", "all_to_all"),
        ("void aiter::allgather_vec<__hip_bfloat16, 8>(aiter::RankData*)", "all_gather"),
    ],
)
def test_what_a_kernels_name_says_it_exchanges(name, kind):
    row = build_kernel_table(TraceBuilder().kernel(name, 60, 30, launch=10).load().rank()).row(0, named=True)
    assert (row["family"], row["collective"]) == ("collective", kind)


@pytest.mark.parametrize(("sent", "received"), [(100, 300), (300, 100)])
def test_an_uneven_all_to_all_counts_by_the_larger_direction(sent, received):
    noted = {"Collective name": "all_to_allv", "dtype": "BFloat16", "In msg nelems": sent, "Out msg nelems": received}
    builder = TraceBuilder().kernel("ncclDevKernel_SendRecv(args)", 60, 30, launch=10, **noted, **{"Group size": 4})
    row = build_kernel_table(builder.load().rank()).row(0, named=True)
    assert (row["collective"], row["bytes"], row["ranks"]) == ("all_to_all", 600, 4)
    dims = [[received], [sent], []]
    asked = TraceBuilder().op("c10d::alltoall_base_", 0, 50, dims=dims, types=["c10::Half", "c10::Half", ""])
    asked.op("record_param_comms", 5, 30, dims=[[sent], []], types=["c10::Half", "Scalar"])
    row = build_kernel_table(asked.kernel("ncclDevKernel_SendRecv(a)", 60, 30, launch=10).load().rank()).row(
        0, named=True
    )
    assert (row["collective"], row["bytes"]) == ("all_to_all", 600)


def queue_message(builder, at, way, nelems, kind="Float", peer=None):
    """Add what PyTorch notes when a message of a group is queued."""
    noted = {"Collective name": way, "dtype": kind, "In msg nelems": nelems, "Out msg nelems": nelems}
    if peer is not None:
        noted["Dst Rank" if way == "send" else "Src Rank"] = peer
    group = {"Group size": 8, "Process Group Name": "3", "Process Group Description": "mesh_pp"}
    return builder.op("record_param_comms", at, 5, **noted, **group)


def test_grouped_sends_have_the_bytes_and_ranks_of_their_messages():
    """Two groups: 4 * (100 + 50) bytes sent against 4 * 120 received, then 2 * 10 sent alone."""
    builder = TraceBuilder()
    for at, way, nelems in ((0, "send", 100), (10, "recv", 120), (20, "send", 50)):
        queue_message(builder, at, way, nelems)
    builder.kernel("ncclDevKernel_SendRecv(args)", 60, 30, launch=40)
    queue_message(builder, 100, "send", 10, "Half").kernel("ncclDevKernel_SendRecv(args)", 160, 30, launch=120)
    table = build_kernel_table(builder.load().rank())
    assert table["collective"].to_list() == ["send_recv"] * 2
    assert table["bytes"].to_list() == [600, 20]
    assert table["ranks"].to_list() == [8, 8]
    assert table["group_description"].to_list() == ["mesh_pp"] * 2


@pytest.mark.parametrize(
    ("messages", "sender", "receiver"),
    [
        ((("send", 5), ("recv", 5)), 0, 5),  # rank 0 and its only peer, in both directions
        ((("send", 5),), None, 5),
        ((("recv", 5),), 5, None),
        ((("send", 5), ("recv", 6)), None, None),
    ],
)
def test_a_group_with_one_peer_is_a_pair(messages, sender, receiver):
    builder = TraceBuilder()
    for place, (way, peer) in enumerate(messages):
        queue_message(builder, 10 * place, way, 100, peer=peer)
    table = build_kernel_table(builder.kernel("ncclDevKernel_SendRecv(args)", 60, 30, launch=40).load().rank())
    assert table.select("sender", "receiver").row(0) == (sender, receiver)


def test_a_send_with_its_own_kernel_is_in_no_group():
    builder = queue_message(TraceBuilder(), 0, "send", 100).kernel("ncclDevKernel_SendRecv(args)", 60, 30, launch=2)
    builder.kernel("ncclDevKernel_SendRecv(args)", 160, 30, launch=120)
    assert build_kernel_table(builder.load().rank())["bytes"].to_list() == [400, None]


def test_an_all_to_all_sends_its_second_input():
    builder = TraceBuilder().op("c10d::alltoall_base_", 0, 50, dims=[[40], [64], []], types=["int", "int", ""])
    builder.op("record_param_comms", 5, 30, dims=[[64], []], types=["int", "Scalar"])
    kernel = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
    row = build_kernel_table(builder.kernel(kernel, 60, 30, launch=10).load().rank()).row(0, named=True)
    assert (row["collective"], row["bytes"]) == ("all_to_all", 4 * 64)
