"""Tensor-parallel ranks of a job whose layers one rank has whole."""

import numpy as np
import polars as pl
import pytest

import predictors
import tracekit as tk
from predictors import load_gpu
from tests.codes import find_message, has_code, list_codes
from tests.jobs import job
from tests.layers import NODE, Layers
from tracekit.comm import load_cluster
from tracekit.comm import predict as predict_collectives
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.tensor_parallel import insert_layer_allreduces
from tracekit.run import MeasuredRun

TOKENS, HIDDEN, WIDE, HEADS = 512, 1024, 4096, 16
MESSAGE = TOKENS * HIDDEN * 2
SQUARE, UP, DOWN = [HIDDEN, HIDDEN], [HIDDEN, WIDE], [WIDE, HIDDEN]


class Model(Layers):
    """Layers of a transformer in bf16: query, attention, projection, norm, and a block of two products."""

    def __init__(self, layers: int = 1, *, trains: bool = False, heads: int = HEADS, vocabulary: int = 0) -> None:
        super().__init__()
        self.heads = [[1, heads, TOKENS, HIDDEN // heads]] * 3
        for _ in range(layers):
            self.multiplies([TOKENS, HIDDEN], SQUARE, 50)
            self.runs("aten::_scaled_dot_product_flash_attention", self.heads, "flash_fwd_kernel", 40)
            self.multiplies([TOKENS, HIDDEN], SQUARE, 51)
            self.runs("aten::native_layer_norm", [[TOKENS, HIDDEN]], "vectorized_layer_norm_kernel", 8)
            self.multiplies([TOKENS, HIDDEN], UP, 200)
            self.runs("aten::gelu", [[TOKENS, WIDE]], "vectorized_elementwise_kernel", 10)
            self.multiplies([TOKENS, WIDE], DOWN, 201)
        if vocabulary:
            self.multiplies([TOKENS, HIDDEN], [HIDDEN, vocabulary], 500)
        for _ in range(layers if trains else 0):
            self.layer_backward()

    def layer_backward(self) -> None:
        self.multiplies_backward([TOKENS, HIDDEN], [HIDDEN, WIDE], 200)
        self.multiplies_backward([WIDE, TOKENS], [TOKENS, HIDDEN], 200)
        self.accumulates(DOWN)
        self.multiplies_backward([TOKENS, WIDE], [WIDE, HIDDEN], 200)
        self.multiplies_backward([HIDDEN, TOKENS], [TOKENS, WIDE], 200)
        self.accumulates(UP)
        self.multiplies_backward([TOKENS, HIDDEN], SQUARE, 50)
        self.multiplies_backward([HIDDEN, TOKENS], [TOKENS, HIDDEN], 50)
        self.accumulates(SQUARE)
        self.backward("AttentionBackward0")
        self.runs("aten::_scaled_dot_product_flash_attention_backward", self.heads, "flash_bwd_kernel", 90)
        self.multiplies_backward([TOKENS, HIDDEN], SQUARE, 50)
        self.multiplies_backward([HIDDEN, TOKENS], [TOKENS, HIDDEN], 50)
        self.accumulates(SQUARE)

    def multiplies_backward(self, left: list[int], right: list[int], dur: float) -> None:
        self.backward("MmBackward0")
        self.multiplies(left, right, dur)

    def multiplies(self, left: list[int], right: list[int], dur: float) -> None:
        self.runs("aten::mm", [left, right], "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_nn", dur)


def reduce_us(ranks: int, *, custom: bool) -> float:
    call = {"collective": ["all_reduce"], "bytes": [MESSAGE], "ranks": [ranks], "dtype": ["bf16"], "custom": [custom]}
    return predict_collectives(pl.DataFrame(call), load_cluster(NODE))["time_us"].item()


def law_us(m: int, n: int, k: int) -> float:
    row = {"family": ["gemm"], "dtype": ["bf16"], "framework": ["cublas"], "batch": [1], "m": [m], "n": [n], "k": [k]}
    return predictors.predict(pl.DataFrame(row), load_gpu("a100-sxm-80gb"))["time_us"].item()


def reduced_behind(run: MeasuredRun) -> list[int]:
    """Rows of the kernels that the all-reduces which were put in start behind."""
    grown = insert_layer_allreduces(run.program).program
    added = grown.kernels[run.kernels.height :]
    assert added["bytes"].to_list() == [MESSAGE] * added.height
    line = grown.replay_timeline(np.append(run.kernels["dur_ns"] / 1e3, np.full(added.height, 7.0)))
    ends = line.activity_end_ns[: run.kernels.height]
    return [int(np.flatnonzero(ends <= start).max()) for start in line.activity_start_ns[run.kernels.height :]]


def test_an_all_reduce_follows_each_block():
    assert reduced_behind(Model().run) == [2, 6]
    assert reduced_behind(Model(2).run) == [2, 6, 9, 13]


def test_backward_it_follows_the_gradient_of_a_blocks_input():
    # Behind the 7 forward kernels: 4 products of the wide block, 2 of the projection, attention, 2 of the query.
    assert reduced_behind(Model(trains=True).run) == [2, 6, 9, 14]


def test_an_op_of_several_kernels_is_reduced_once():
    model = Model()
    model.builder.kernel("ampere_bf16_s16816gemm_bf16_64x64_nn", model.end, 5, launch=model.now - 5)
    assert model.run.kernels["family"].to_list()[-2:] == ["gemm", "gemm"]
    assert reduced_behind(model.run) == [2, 7]


def test_the_stream_waits_for_it():
    run = Model().run
    grown = insert_layer_allreduces(run.program).program
    durations = np.append(run.kernels["dur_ns"] / 1e3, [1000.0, 3000.0])
    line = grown.replay_timeline(durations)
    starts_us, ends_us = line.activity_start_ns / 1e3, line.activity_end_ns / 1e3
    # 2 us until what waits on another stream starts.
    assert starts_us[7] == pytest.approx(ends_us[2] + 2)
    assert starts_us[3] == pytest.approx(ends_us[7] + 2)
    assert starts_us[8] == pytest.approx(ends_us[6] + 2)


def test_each_rank_has_its_part_of_the_products_and_heads():
    step = Model().on(tp=4)
    query, attention, projection, norm, up, gelu, down = step.kernels["time_us"].to_list()
    assert query == pytest.approx(50 * law_us(TOKENS, HIDDEN // 4, HIDDEN) / law_us(TOKENS, HIDDEN, HIDDEN))
    assert projection == pytest.approx(51 * law_us(TOKENS, HIDDEN, HIDDEN // 4) / law_us(TOKENS, HIDDEN, HIDDEN))
    assert up == pytest.approx(200 * law_us(TOKENS, WIDE // 4, HIDDEN) / law_us(TOKENS, WIDE, HIDDEN))
    assert down == pytest.approx(201 * law_us(TOKENS, HIDDEN, WIDE // 4) / law_us(TOKENS, HIDDEN, WIDE))
    assert 5 < attention < 40
    assert 1 < gelu < 10
    assert norm == 8
    assert step.inserted_us == {"collective": pytest.approx(2 * reduce_us(4, custom=True))}
    assert "tensor-parallel-inference-inserted" in list_codes(step.notes)
    assert str(step.layout) == "4 ranks = dp 1 x tp 4"


def test_a_mixture_of_experts_is_reduced_once_behind_its_last_product():
    model = Model(0)
    model.multiplies([TOKENS, HIDDEN], [HIDDEN, 3 * HIDDEN], 150)
    model.runs("aten::_scaled_dot_product_flash_attention", model.heads, "flash_fwd_kernel", 40)
    model.multiplies([TOKENS, HIDDEN], SQUARE, 51)
    for left, right in (([8, 128, HIDDEN], [8, HIDDEN, WIDE]), ([8, 128, WIDE], [8, WIDE, HIDDEN])):
        model.runs("aten::bmm", [left, right], "grouped_mm_kernel", 300)
    assert reduced_behind(model.run) == [2, 4]
    first = model.on(tp=4).kernels["time_us"][3]
    assert 50 < first < 150


def test_experts_one_by_one_are_refused():
    model = Model(1)
    for _ in range(4):
        model.multiplies([TOKENS // 4, HIDDEN], UP, 50)
        model.multiplies([TOKENS // 4, WIDE], DOWN, 50)
    with pytest.raises(LayoutError, check=has_code("experts-outside-attention-tokens")):
        model.on(tp=2)


def test_attention_on_unknown_sequences_has_its_heads_shared_out():
    model = Model()
    model.runs("vllm::unified_attention_with_output", [[TOKENS, HEADS, 64]], "kernel_unified_attention_2d", 400)
    model.multiplies([TOKENS, HIDDEN], SQUARE, 51)
    assert model.on(tp=4).kernels["time_us"][7] == pytest.approx(100)


def test_a_vocabulary_is_padded_and_heads_are_not():
    whole = Model(vocabulary=50257).on(tp=1).kernels["time_us"][-1]
    part = Model(vocabulary=50257).on(tp=8).kernels["time_us"][-1]
    assert whole == 500
    assert 50 < part < 100
    with pytest.raises(LayoutError, check=has_code("heads-indivisible")):
        Model(heads=4).on(tp=8)


def test_copies_of_tensor_parallel_ranks_exchange_their_part_of_the_gradients():
    step = Model(2, trains=True).on(tp=4, dp=2)
    assert str(step.layout) == "8 ranks = dp 2 x tp 4"
    inserted = find_message(step.notes, "tensor-parallel-inserted").values
    assert (inserted["allreduces"], inserted["message_bytes"]) == (8, 8 * 2**20)
    assert "ddp-inserted" in list_codes(step.notes)
    assert step.inserted_us["collective"] > 8 * reduce_us(4, custom=False)


def test_more_ranks_are_faster_until_messages_cost_more_than_they_save():
    times = [Model(4).on(tp=tp).step.step_time_us for tp in (1, 2)]
    assert times[1] < times[0]


def test_a_step_without_layers_communicates_nothing():
    model = Model()
    model.builder.step(1, 0, model.now)
    begin = model.now
    model.runs("aten::gelu", [[TOKENS, WIDE]], "vectorized_elementwise_kernel", 10)
    model.builder.step(2, begin, 500)
    step = model.on(tp=4, steps="2")
    assert step.inserted_us == {}
    assert step.step.exposed_comm_us == 0


def test_what_has_no_blocks_is_refused():
    lone = Model(0)
    lone.runs("aten::gelu", [[TOKENS, WIDE]], "vectorized_elementwise_kernel", 10)
    with pytest.raises(LayoutError, check=has_code("no-paired-gemms")):
        lone.on(tp=2)
    pair = Model(0)
    pair.multiplies([TOKENS, WIDE], DOWN, 50)
    pair.multiplies([TOKENS, HIDDEN], UP, 50)
    with pytest.raises(LayoutError, check=has_code("gemm-split-unknown")):
        pair.on(tp=2)
    both = job(Model().builder, Model().builder)
    with pytest.raises(LayoutError, check=has_code("insertion-into-several-ranks")):
        tk.predict(both, cluster=NODE, tp=2)


def test_copies_of_shards_hold_a_part_of_each_layer():
    model = Model(3, trains=True)
    model.accumulates([HIDDEN])
    whole, part = (model.on(tp=tp, dp=2, fsdp=True).inserted_us["copy"] for tp in (1, 4))
    assert part < 0.6 * whole
