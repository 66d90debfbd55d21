"""Ranks that share the experts of a job whose experts one rank has whole."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import predictors
import tracekit as tk
from predictors import load_gpu
from tests.codes import find_message, has_code, list_codes
from tests.jobs import job
from tests.layers import MIB, NODE, Layers
from tracekit.comm import load_cluster
from tracekit.comm import predict as predict_collectives
from tracekit.models.captured import FACTS_KEY, CaptureFacts
from tracekit.models.stacks import EXPERT_LAUNCH_US, STACKS, Stack
from tracekit.parallelism.expert_parallel import (
    compute_expert_parameter_fraction,
    count_expert_parameters,
    find_experts,
    insert_expert_alltoalls,
    split_experts,
)
from tracekit.parallelism.fsdp import BUFFER_COPY_OP, EXPERT_BUFFER_COPY_OP, insert_expert_fsdp_collectives
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.tensor_parallel import find_exchanges_of_dense_blocks
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder

TOKENS, HIDDEN, WIDE, EXPERTS, VISITS = 512, 1024, 2048, 8, 2
PAIRS = TOKENS * VISITS
MESSAGE = PAIRS * HIDDEN * 2
UP, DOWN = [EXPERTS, HIDDEN, WIDE], [EXPERTS, WIDE, HIDDEN]
BF16 = Layers.dtype


class Model(Layers):
    """Layers in bf16 of attention, 100 us, and a mixture of experts, 300 us a product, that tokens are gathered for."""

    def __init__(self, layers: int = 2, *, trains: bool = False, again: bool = False) -> None:
        super().__init__()
        for _ in range(layers):
            self.layer()
        if trains:
            self.builder.op("autograd::engine::evaluate_function: MseLossBackward0", self.now - 2, 1)
        for _ in range(layers if trains else 0):
            self.layer_backward(again)
        if trains:
            self.builder.annotation("Optimizer.step#Adam.step", self.now, 10)
            self.runs("aten::_fused_adamw_", [UP, DOWN, [HIDDEN, HIDDEN]] * layers, "multi_tensor_apply_kernel", 800)

    def layer(self) -> None:
        self.runs("aten::mm", [[TOKENS, HIDDEN], [HIDDEN, HIDDEN]], "ampere_bf16_s16816gemm_bf16_128x128", 100)
        self.runs("aten::index", [[TOKENS, HIDDEN], [PAIRS]], "index_elementwise_kernel", 8)
        self.experts()
        self.runs("aten::index_add_", [[TOKENS, HIDDEN], [], [PAIRS], [PAIRS, HIDDEN]], "indexFuncLargeIndex", 9)

    def experts(self) -> None:
        self.grouped([PAIRS, HIDDEN], UP)
        self.runs("aten::silu", [[PAIRS, WIDE]], "vectorized_elementwise_kernel", 10)
        self.grouped([PAIRS, WIDE], DOWN)

    def layer_backward(self, again: bool) -> None:
        self.backward("GroupedMmBackward0", 99 if again else 49)
        self.runs("aten::index", [[TOKENS, HIDDEN], [PAIRS]], "index_elementwise_kernel", 8)
        if again:
            self.experts()
        self.grouped([PAIRS, HIDDEN], [EXPERTS, HIDDEN, WIDE])
        self.grouped([WIDE, PAIRS], [PAIRS, HIDDEN])
        self.accumulates(DOWN)
        self.grouped([PAIRS, WIDE], [EXPERTS, WIDE, HIDDEN])
        self.grouped([HIDDEN, PAIRS], [PAIRS, WIDE])
        self.accumulates(UP)
        self.backward("MmBackward0", 19)
        for _ in range(2):
            self.runs("aten::mm", [[TOKENS, HIDDEN], [HIDDEN, HIDDEN]], "ampere_bf16_s16816gemm_bf16_128x128", 100)
        self.accumulates([HIDDEN, HIDDEN])

    def grouped(self, left: list[int], right: list[int]) -> None:
        self.runs("aten::_grouped_mm", [left, right, [EXPERTS]], "cutlass::device_kernel<GroupedProblemShape>", 300)


def collective_us(collective: str, size: float, ranks: int) -> float:
    call = {"collective": [collective], "bytes": [size], "ranks": [ranks], "dtype": ["bf16"]}
    return predict_collectives(pl.DataFrame(call), load_cluster(NODE))["time_us"].item()


def law_us(batch: int, m: int, n: int, k: int) -> float:
    row = {"family": ["gemm"], "dtype": ["bf16"], "batch": [batch], "m": [m], "n": [n], "k": [k]}
    return predictors.predict(pl.DataFrame(row), load_gpu("a100-sxm-80gb"))["time_us"].item()


def copy_us(size: int) -> float:
    row = {"family": ["copy"], "dtype": ["bf16"], "rows": [1], "cols": [size // 2], "flops": [0], "bytes": [2 * size]}
    return predictors.predict(pl.DataFrame(row), load_gpu("a100-sxm-80gb"))["time_us"].item()


def shared(run: MeasuredRun, ranks: int) -> pl.DataFrame:
    return split_experts(run.kernels, find_experts(run.program), compute_expert_parameter_fraction(run.program), ranks)


def test_experts_are_told_by_their_grouped_products():
    experts = find_experts(Model(trains=True).run.program)
    assert (experts.experts_per_layer, experts.hidden, experts.is_stacked) == (EXPERTS, HIDDEN, True)
    assert experts.gemms["pairs"].unique().to_list() == [PAIRS]
    assert experts.gemms["layer"].to_list() == [0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    assert count_expert_parameters(Model(trains=True).run.program) == EXPERTS * 2 * HIDDEN * WIDE


def test_each_rank_has_fewer_experts_with_more_tokens_each():
    table = shared(Model(1, trains=True).run, 4)
    products = table.filter(pl.col("op") == "aten::_grouped_mm").select("batch", "m", "n", "k").rows()
    rows = 4 * PAIRS // EXPERTS
    assert products == [
        (2, rows, WIDE, HIDDEN),
        (2, rows, HIDDEN, WIDE),
        (2, rows, WIDE, HIDDEN),
        (2, WIDE, HIDDEN, rows),
        (2, rows, HIDDEN, WIDE),
        (2, HIDDEN, WIDE, rows),
    ]
    changed = table.filter("changed")["family"].to_list()
    assert changed == ["gemm"] * 6 + ["optimizer"]


def test_the_optimizer_has_a_part_of_the_experts_weights():
    """Of 2 x 8 x 1024 x 2048 + 1024 x 1024 parameters all but the last are experts'."""
    run = Model(1, trains=True).run
    assert compute_expert_parameter_fraction(run.program) == pytest.approx(32 / 33)
    before, after = (table.filter(family="optimizer")["bytes"].item() for table in (run.kernels, shared(run, 4)))
    assert after == pytest.approx(before * 9 / 33, rel=1e-6)


def test_few_tokens_visit_few_experts():
    """64 experts, of which 4 tokens visit 8; of 16 on each of 4 ranks the 16 tokens visit 8."""
    builder = TraceBuilder()
    dims = [[4, HIDDEN], [64, 2 * WIDE, HIDDEN], [64, HIDDEN, WIDE], [4, VISITS], [4, VISITS]]
    builder.op("aten::index", 0, 8, dims=[[4, HIDDEN]]).kernel("index_elementwise_kernel", 50, 5, launch=2)
    builder.op("vllm::inplace_fused_experts", 10, 20, dims=dims, types=[BF16] * 3 + ["float", "int"])
    builder.kernel("fused_moe_kernel", 100, 50, launch=12).kernel("fused_moe_kernel", 151, 50, launch=20)
    run = prepare_run(builder.load())
    assert find_experts(run.program).experts_per_layer == 64
    assert run.kernels.filter(family="gemm").select("batch", "m").rows() == [(8, 1)] * 2
    assert shared(run, 4).filter(family="gemm").select("batch", "m").rows() == [(8, 1)] * 2
    assert shared(run, 16).filter(family="gemm").select("batch", "m").rows() == [(4, 2)] * 2


def test_tokens_are_sent_before_the_experts_and_come_back_behind_them():
    run = Model(1).run
    grown = insert_expert_alltoalls(run.program).program
    added = grown.kernels[run.kernels.height :]
    assert added.select("collective", "bytes").rows() == [("all_to_all", MESSAGE)] * 2
    line = grown.replay_timeline(np.append(run.kernels["dur_ns"] / 1e3, [1000.0, 3000.0]))
    starts_us, ends_us = line.activity_start_ns / 1e3, line.activity_end_ns / 1e3
    # 2 us until what waits on another stream starts.
    assert starts_us[6] == pytest.approx(ends_us[1] + 2)
    assert starts_us[2] == pytest.approx(ends_us[6] + 2)
    assert starts_us[7] == pytest.approx(ends_us[4] + 2)
    assert starts_us[5] == pytest.approx(ends_us[7] + 2)


def test_a_stack_that_launches_experts_one_by_one_needs_the_host_for_each():
    """Of 8 experts on 4 ranks 2 each, in 2 products forward and 4 backward."""
    model = Model(1, trains=True)
    facts = CaptureFacts(gpu="a100-sxm-80gb", parameters=1, parameter_bytes=2, held_bytes=2, peak_bytes=2, trains=True)

    def get_end_us(stack: str, ranks: int) -> float:
        model.builder.metadata[FACTS_KEY] = replace(facts, stack=stack).to_dict()
        run = model.run
        grown = insert_expert_alltoalls(run.program, ranks=ranks).program
        line = grown.replay_timeline(np.append(run.kernels["dur_ns"] / 1e6, np.zeros(4)))
        return float(line.activity_start_ns.max() / 1e3)

    more_us = get_end_us("megatron", 1) - get_end_us("megatron", 4)
    assert more_us == pytest.approx((8 - 2) * (2 + 4) * EXPERT_LAUNCH_US, rel=0.01)
    assert get_end_us("torchtitan", 1) == get_end_us("torchtitan", 4)


def test_what_a_stack_leaves_open_of_experts_is_common_to_the_gpus_work(monkeypatch: pytest.MonkeyPatch):
    """Factors of 0.4 and 2.5 at the ends, beside which the kernels' own errors are small."""
    model = Model(2, trains=True)
    facts = CaptureFacts(gpu="a100-sxm-80gb", parameters=1, parameter_bytes=2, held_bytes=2, peak_bytes=2, trains=True)
    model.builder.metadata[FACTS_KEY] = replace(facts, stack="hf").to_dict()

    def predict(width: float, ranks: int) -> Any:
        monkeypatch.setitem(STACKS, "hf", Stack(expert_half_width=width))
        return model.on(dp=ranks, ep=ranks)

    narrow, wide = (predict(width, 4) for width in (0.0, 0.9))
    assert wide.step.step_time_us == narrow.step.step_time_us
    work_us = wide.step.kernel_time_us - wide.step.exposed_comm_us
    assert wide.high_us - wide.step.step_time_us > (np.exp(0.9) - 1) * work_us * 0.9
    assert wide.low_us < narrow.low_us
    assert "0.41 to 2.46" in " ".join(map(str, wide.notes))


@pytest.mark.parametrize(("again", "sent"), [(False, 4), (True, 6)])
def test_layers_that_are_computed_again_send_again(again, sent):
    added = insert_expert_alltoalls(Model(1, trains=True, again=again).run.program).program.kernels.filter(
        collective="all_to_all"
    )
    assert added["bytes"].to_list() == [MESSAGE] * sent


def test_inference_of_copies_that_share_experts():
    found = Model(1).on(ep=4)
    assert str(found.layout) == "4 ranks = dp 4, ep 4"
    assert found.batch_ratio == 4
    product, _, first, _, second, _ = found.kernels["time_us"].to_list()
    rows = PAIRS // EXPERTS
    assert product == 100
    assert first == pytest.approx(300 * law_us(2, 4 * rows, WIDE, HIDDEN) / law_us(8, rows, WIDE, HIDDEN))
    assert second == pytest.approx(300 * law_us(2, 4 * rows, HIDDEN, WIDE) / law_us(8, rows, HIDDEN, WIDE))
    assert found.kernels["high_us"][2] >= 300 > second
    assert found.inserted_us == {"collective": pytest.approx(2 * collective_us("all_to_all", MESSAGE, 4))}
    note = find_message(found.notes, "expert-parallel-inserted").values
    assert (note["experts"], note["alltoalls"], note["message_bytes"]) == (8, 2, 4 * MIB)


def test_gradients_of_experts_are_exchanged_by_copies_of_the_same():
    """Each of 4 ranks has a quarter of the experts, each of which 2 of 8 ranks have."""
    found = Model(1, trains=True).on(dp=8, ep=4)
    assert str(found.layout) == "8 ranks = dp 8, ep 4"
    weights = 2 * EXPERTS * HIDDEN * WIDE
    exchanged_us = 2 * collective_us("all_reduce", weights / 4, 2) + collective_us("all_reduce", 2 * MIB, 8)
    sent_us = 4 * collective_us("all_to_all", MESSAGE, 4)
    assert found.inserted_us["collective"] == pytest.approx(exchanged_us + sent_us)
    assert find_message(found.notes, "ddp-experts-apart").values["expert_bytes"] == 64 * MIB


def test_experts_that_nobody_else_has_exchange_no_gradients():
    """Memory: 2 + 2 + 8 bytes of 33 Mi parameters, of which 32 are experts', shared out by eight."""
    found = Model(1, trains=True).on(ep=8)
    exchanged_us = collective_us("all_reduce", 2 * MIB, 8)
    assert found.inserted_us["collective"] == pytest.approx(exchanged_us + 4 * collective_us("all_to_all", MESSAGE, 8))
    assert found.memory.min_bytes == pytest.approx(12 * MIB * (1 + 32 / 8))


def test_a_sharded_optimizer_is_shared_by_copies_of_the_same_experts():
    """Of 66 MiB 64 are experts': each of 4 ranks has 16, which 2 of 8 ranks scatter, update a half of, and gather.

    Memory: 2 + 2 bytes of 1 + 32 / 4 Mi parameters, 8 bytes of an eighth of 33.
    """
    found = Model(1, trains=True).on(dp=8, ep=4, zero=1)
    assert str(found.layout) == "8 ranks = dp 8 (ZeRO 1), ep 4"
    exchanged_us = sum(
        collective_us(name, 2 * MIB, 8) + collective_us(name, 16 * MIB, 2) for name in ("all_gather", "reduce_scatter")
    )
    sent_us = 4 * collective_us("all_to_all", MESSAGE, 4)
    assert found.inserted_us["collective"] == pytest.approx(exchanged_us + sent_us, rel=0.1)
    assert found.memory.min_bytes == pytest.approx(MIB * (4 * (1 + 32 / 4) + 8 * 33 / 8))


def test_sharded_copies_share_experts():
    """Two layers of 2 MiB and 64 of experts: a quarter of these, 16 MiB, is gathered by the 2 of 8 ranks that have it.

    Memory: 12 bytes of 66 Mi parameters, an eighth of which each rank keeps, as without shared experts.
    """
    model = Model(trains=True)
    found, alone = model.on(dp=8, ep=4, fsdp=True), model.on(dp=8, fsdp=True)
    assert str(found.layout) == "8 ranks = dp 8 (sharded), ep 4"
    sizes = ((2 * MIB, 8), (16 * MIB, 2))
    gathered_us, scattered_us = (
        sum(collective_us(name, *size) for size in sizes) for name in ("all_gather", "reduce_scatter")
    )
    sent_us = 8 * collective_us("all_to_all", MESSAGE, 4)
    assert found.inserted_us["collective"] == pytest.approx(4 * gathered_us + 2 * scattered_us + sent_us)
    assert found.memory.min_bytes == alone.memory.min_bytes == pytest.approx(12 * 66 * MIB / 8)
    assert found.kernels["time_us"][-1] == alone.kernels["time_us"][-1]
    assert found.inserted_us["copy"] == pytest.approx(6 * (copy_us(2 * MIB) + copy_us(16 * MIB)))
    assert find_message(found.notes, "fsdp-experts-apart").values["expert_bytes"] == 64 * MIB


def test_experts_that_nobody_else_has_are_not_gathered():
    found = Model(trains=True).on(dp=8, ep=8, fsdp=True)
    dense_us = 4 * collective_us("all_gather", 2 * MIB, 8) + 2 * collective_us("reduce_scatter", 2 * MIB, 8)
    assert found.inserted_us["collective"] == pytest.approx(dense_us + 8 * collective_us("all_to_all", MESSAGE, 8))


def test_layers_wait_for_their_experts_too():
    """Each collective launched for a layer has its copy of a buffer, one behind the other."""
    run = Model(trains=True).run
    grown = insert_expert_fsdp_collectives(run.program).program
    added = grown.kernels[run.kernels.height :].with_row_index("number", run.kernels.height)
    gathers = added.filter(collective="all_gather")
    assert gathers["bytes"].to_list() == [2 * MIB, 64 * MIB] * 4
    durations = np.append(run.kernels["dur_ns"] / 1e3, np.full(added.height, 10.0))
    durations[gathers["number"].to_numpy()] = [100.0, 1000.0] * 4
    line = grown.replay_timeline(durations)
    first_us = line.activity_start_ns[0] / 1e3
    done_us = line.activity_end_ns[gathers["number"].to_numpy()[:2]] / 1e3
    copies = added.filter(pl.col("op").is_in([BUFFER_COPY_OP, EXPERT_BUFFER_COPY_OP]))["number"].to_numpy()[:2]
    copied_us = line.activity_start_ns[copies] / 1e3
    # 2 us until what waits on another stream starts, 1 us between the kernels of a stream.
    assert copied_us[1] == pytest.approx(done_us[1] + 2)
    assert first_us == pytest.approx(copied_us[1] + 10 + 1)


def test_experts_in_stages_send_with_each_micro_batch():
    few, many = (Model(2, trains=True).on(ep=2, pp=2, micro_batches=count).step for count in (2, 8))
    assert many.exposed_comm_us > 3 * few.exposed_comm_us


def test_the_ranks_of_a_layer_share_its_experts_without_sending_tokens():
    parts, both = (Model(1).on(tp=4, **change) for change in ({}, {"ep": 4}))
    assert str(both.layout) == "4 ranks = dp 1 x tp 4, ep 4"
    assert both.step.step_time_us == parts.step.step_time_us
    assert both.inserted_us == parts.inserted_us


def test_the_ranks_of_a_layer_share_its_experts_and_copies_of_them_shards():
    parts, both = (Model(trains=True).on(dp=2, tp=4, fsdp=True, **change) for change in ({}, {"ep": 4}))
    assert str(both.layout) == "8 ranks = dp 2 (sharded) x tp 4, ep 4"
    assert both.step.step_time_us == parts.step.step_time_us
    assert both.memory.min_bytes == parts.memory.min_bytes


def test_ranks_of_a_layer_and_copies_of_it_share_experts():
    """Of 2 x 2 ranks each has 2 experts, and sends half of a copy's tokens."""
    both = Model(1).on(dp=2, tp=2, ep=4, sequence_parallel=True)
    assert str(both.layout) == "4 ranks = dp 2 x tp 2 (sequence parallel), ep 4"
    added = both.program.kernels.filter(family="collective").select("collective", "bytes")
    assert added.filter(collective="all_to_all").rows() == [("all_to_all", MESSAGE // 2)] * 2
    run = Model(1).run
    halved = run.kernels.with_columns(batch=pl.when(pl.col("batch") > 1).then(pl.col("batch") // 2).otherwise("batch"))
    table = split_experts(halved, find_experts(run.program), 0.0, 2, 2)
    assert table.filter(pl.col("batch") > 1).select("batch", "m").unique().rows() == [(2, PAIRS // 4)]
    assert "sequence_parallel=" in refused(Model(1), dp=2, tp=2, ep=4)


def test_blocks_of_experts_neither_gather_nor_reduce_what_their_ranks_send_apart():
    """Two layers of attention and experts, forward and backward, where the router's gradient follows the experts'."""
    forward = [("k", HIDDEN), ("experts", WIDE)] * 2
    backward = [("experts", WIDE), ("k", EXPERTS), ("k", HIDDEN)] * 2
    kinds, depths = zip(*forward, *backward, strict=True)
    phases = ["forward"] * len(forward) + ["backward"] * len(backward)
    found = pl.DataFrame({"kind": kinds, "k": depths, "phase": phases, "n": HIDDEN, "device": 0})
    reduced, gathered = find_exchanges_of_dense_blocks(found, EXPERTS).reshape(-1, 2).T.tolist()
    assert reduced == [True, False] * 2 + [False, False, True] * 2
    assert gathered == [False, True] * 2 + [False, True, False, False, True, True]


def test_a_weight_for_each_expert():
    builder = TraceBuilder()
    weights = [[WIDE, HIDDEN]] * 4
    builder.op("aten::index", 0, 8, dims=[[PAIRS, HIDDEN]]).kernel("index_elementwise_kernel", 50, 5, launch=2)
    for number, dims in enumerate(([[PAIRS, HIDDEN], *weights], [[PAIRS, WIDE], *[[HIDDEN, WIDE]] * 4])):
        builder.op("_GroupedLinear", 20 + 30 * number, 20, dims=dims, types=[BF16] * 5)
        builder.kernel("cutlass::device_kernel<GroupedGemm>", 100 + 60 * number, 50, launch=22 + 30 * number)
    run = prepare_run(builder.load())
    experts = find_experts(run.program)
    assert (experts.experts_per_layer, experts.hidden, experts.is_stacked) == (4, HIDDEN, False)
    assert shared(run, 2).filter(family="gemm").select("batch", "m").rows() == [(2, PAIRS // 2)] * 2


def refused(model: Model, **change: Any) -> str:
    with pytest.raises(LayoutError) as caught:
        model.on(**change)
    return str(caught.value)


def test_what_cannot_be_shared_is_refused():
    model = Model(1)
    assert "8 experts can't be split evenly over 3 ranks" in refused(model, ep=3)
    assert "Leave out fsdp= or pp=" in refused(Model(trains=True), ep=4, pp=2, fsdp=True)
    assert "whole replicas of 4 tensor-parallel ranks" in refused(model, ep=2, tp=4)
    assert "ep 4 doesn't divide" in refused(model, ep=4, dp=6)
    first = Model(0)
    first.grouped([PAIRS, HIDDEN], UP)
    first.grouped([PAIRS, WIDE], DOWN)
    assert "begins with MoE experts" in refused(first, ep=4)


def test_experts_that_cannot_be_told_are_refused():
    dense = Model(0)
    dense.runs("aten::mm", [[TOKENS, HIDDEN], [HIDDEN, HIDDEN]], "ampere_bf16_s16816gemm_bf16_128x128", 100)
    assert "no MoE layers for expert parallelism" in refused(dense, ep=4)
    unknown = Model(1)
    unknown.runs("vllm::moe_forward", [[TOKENS, HIDDEN]], "fused_moe_kernel", 500)
    assert "% of kernel time is MoE kernels without known work" in refused(unknown, ep=4)
    open_ended = Model(0)
    open_ended.runs("aten::index", [[TOKENS, HIDDEN], [PAIRS]], "index_elementwise_kernel", 8)
    open_ended.grouped([PAIRS, HIDDEN], UP)
    assert "read tokens 1024 wide and write them 2048 wide" in refused(open_ended, ep=4)
    with pytest.raises(LayoutError, check=has_code("recorded-ranks-without-expert-parallel")):
        tk.predict(job(Model().builder, Model().builder), cluster=NODE, ep=2)


def test_a_sweep_over_ranks_that_share_experts():
    found = tk.sweep(Model(1).builder.load(), cluster=NODE, ep=[4], samples=1)
    assert found.table.select("ranks", "dp", "ep").sort("ranks").rows() == [(4, 4, 4), (8, 8, 4)]
    assert found.refused == ()
    assert "expert-parallel-inserted" in list_codes(found.assumptions)
