"""Tensor parallelism over other numbers of ranks."""

from typing import Any

import polars as pl
import pytest

import predictors
import tracekit as tk
from predictors import load_gpu
from tracekit.parallelism.collective_calls import list_collectives
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.process_groups import infer_layout
from tracekit.parallelism.tensor_parallel import split_layers
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

SOURCE = "8xa100-sxm-80gb"
TOKENS, HIDDEN, WIDE = 512, 1024, 2048
"""A block of 4 ranks: 8192 columns in all, 2048 for each."""


class Block:
    """Two products, what lies between them, and the all-reduce of what comes out; then attention of 8 heads a rank."""

    def __init__(self, *, reduced: int = TOKENS * HIDDEN, shapes: bool = True, group: str = "mesh_tp") -> None:
        self.builder = TraceBuilder()
        self.builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 4}
        self.shapes, self.now, self.end = shapes, 0.0, 50.0
        self.runs("aten::mm", [[TOKENS, HIDDEN], [HIDDEN, WIDE]], "ampere_bf16_s16816gemm_bf16_128x128", 60)
        self.runs("aten::gelu", [[TOKENS, WIDE]], "vectorized_elementwise_kernel", 10)
        self.runs("aten::mm", [[TOKENS, WIDE], [WIDE, HIDDEN]], "ampere_bf16_s16816gemm_bf16_128x128", 60)
        message = {"Collective name": "allreduce", "In msg nelems": reduced, "dtype": "BFloat16", "Group size": 4}
        self.builder.op("record_param_comms", self.now, 10, **message, **{"Process Group Description": group})
        self.builder.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", self.end, 40, launch=self.now + 2)
        self.now, self.end = self.now + 20, self.end + 41
        self.runs("aten::native_layer_norm", [[TOKENS, HIDDEN]], "vectorized_layer_norm_kernel", 8)

    def runs(self, op: str, dims: list[Any], kernel: str, dur: float) -> None:
        dims_of = {"dims": dims, "types": ["c10::BFloat16"] * len(dims)} if self.shapes else {}
        self.builder.op(op, self.now, 10, **dims_of).kernel(kernel, self.end, dur, launch=self.now + 2)
        self.now, self.end = self.now + 20, self.end + dur + 1

    def on(self, tp: int, **change: int) -> pl.DataFrame:
        return tk.predict(self.builder.load(), cluster=SOURCE, tp=tp, **change)[SOURCE].kernels


def law_us(**dims: int) -> float:
    row = pl.DataFrame(
        {
            "family": ["gemm"],
            "dtype": ["bf16"],
            "batch": [1],
            "framework": ["cublas"],
            **{k: [v] for k, v in dims.items()},
        }
    )
    return predictors.predict(row, load_gpu("a100-sxm-80gb"))["time_us"].item()


def test_the_layout_is_told():
    assert infer_layout(prepare_run(Block().builder.load()).program) == Layout(tp=4)


def test_products_give_up_columns_then_rows_and_the_norm_nothing():
    first, gelu, second, reduced, norm = Block().on(8, world_size=8)["time_us"].to_list()
    narrow = law_us(m=TOKENS, n=WIDE // 2, k=HIDDEN) / law_us(m=TOKENS, n=WIDE, k=HIDDEN)
    shallow = law_us(m=TOKENS, n=HIDDEN, k=WIDE // 2) / law_us(m=TOKENS, n=HIDDEN, k=WIDE)
    assert first == pytest.approx(60 * narrow)
    assert second == pytest.approx(60 * shallow)
    assert 4 < gelu < 10
    assert norm == 8
    assert reduced > 40


def test_one_rank_does_it_all_without_a_word():
    first, gelu, second, reduced, norm = Block().on(1, world_size=1)["time_us"].to_list()
    assert first == pytest.approx(60 * law_us(m=TOKENS, n=4 * WIDE, k=HIDDEN) / law_us(m=TOKENS, n=WIDE, k=HIDDEN))
    deep = law_us(m=TOKENS, n=HIDDEN, k=4 * WIDE) / law_us(m=TOKENS, n=HIDDEN, k=WIDE)
    assert second == pytest.approx(60 * deep)
    assert 2 < deep < 4
    assert gelu > 12
    assert (reduced, norm) == (0, 8)


def test_as_it_was_gives_the_measurement_back():
    assert Block().on(4)["time_us"].to_list() == [60, 10, 60, 40, 8]


def refused(block: Block, tp: int = 8) -> str:
    with pytest.raises(LayoutError) as error:
        block.on(tp, dp=1)
    return str(error.value)


def test_what_can_not_be_told_is_refused():
    assert "no known work" in refused(Block(shapes=False))
    assert "no GEMM's output" in refused(Block(reduced=12345))
    assert "can't be split over 3" in refused(Block(), 3)
    odd = Block()
    odd.runs("aten::mm", [[TOKENS, HIDDEN], [HIDDEN, HIDDEN]], "ampere_bf16_s16816gemm_bf16_128x128", 60)
    assert "can't be told" in refused(odd)
    narrow = Block()
    narrow.runs("aten::mm", [[TOKENS, 320], [320, 192]], "ampere_bf16_s16816gemm_bf16_128x128", 60)
    assert "can't be told" in refused(narrow)
    uneven = Block()
    uneven.runs("aten::_scaled_dot_product_flash_attention", [[2, 3, 2048, 64]] * 3, "flash_fwd_kernel", 40)
    assert "12 heads can't be split over 8 ranks" in refused(uneven)
    experts = Block()
    experts.runs("vllm::moe_forward", [[TOKENS, HIDDEN]], "fused_moe_kernel", 500)
    assert "no known work, most of it of vllm::moe_forward" in refused(experts)


def test_heads_of_keys_are_shared_out_too_but_no_rank_has_less_than_one():
    block = Block()
    block.runs(
        "aten::_scaled_dot_product_flash_attention", [[2, 8, 2048, 64], *[[2, 2, 2048, 64]] * 2], "flash_fwd", 40
    )
    run = prepare_run(block.builder.load())
    calls = list_collectives(run.kernels, 4)
    heads = [split_layers(run.kernels, calls, 4, after).select("heads", "kv_heads").row(-1) for after in (8, 16)]
    assert heads == [(4, 1), (2, 1)]


def test_attention_shares_out_its_heads():
    block = Block()
    query = [[2, 8, 2048, 64]] * 3
    block.runs("aten::_scaled_dot_product_flash_attention", query, "flash_fwd_kernel", 40)
    whole, half = (block.on(tp, dp=1)["time_us"][-1] for tp in (4, 8))
    assert whole == 40
    assert 10 < half < 35
