"""FLOPs and bytes of every family, worked out by hand."""

from __future__ import annotations

import polars as pl
import pytest

from predictors.columns import prepare_kernels


def work(**columns: object) -> tuple[float, float]:
    row = prepare_kernels(pl.DataFrame({name: [value] for name, value in columns.items()})).row(0, named=True)
    return row["work_flops"], row["work_bytes"]


def test_a_multiply_add_is_two_flops_and_each_operand_moves_once():
    assert work(family="gemm", dtype="bf16", m=3, n=5, k=7) == (2 * 3 * 5 * 7, 2 * (3 * 7 + 7 * 5 + 3 * 5))


def test_fp8_products_come_out_in_16_bit():
    assert work(family="gemm", dtype="fp8", batch=2, m=3, n=5, k=7)[1] == 2 * (3 * 7 + 7 * 5 + 2 * 3 * 5)


def test_weights_alone_have_4_bits_and_a_scale_of_16_for_each_32():
    assert work(family="gemm", dtype="int4_wo", m=3, n=5, k=7) == (
        2 * 3 * 5 * 7,
        2 * 3 * 7 + 0.5625 * 7 * 5 + 2 * 3 * 5,
    )


def test_a_share_of_an_op_is_that_share_of_its_work():
    whole = work(family="gemm", dtype="fp32", m=64, n=64, k=64)
    assert work(family="gemm", dtype="fp32", m=64, n=64, k=64, share=0.25) == (whole[0] / 4, whole[1] / 4)


def attention(**columns: object) -> tuple[float, float]:
    shape = {"batch": 1, "heads": 1, "q_len": 4, "kv_len": 4, "head_dim": 8}
    return work(family="attention", dtype="bf16", **(shape | columns))


@pytest.mark.parametrize(
    ("pairs", "columns"),
    [
        (16, {}),
        (1 + 2 + 3 + 4, {"causal": True}),
        (5 + 6 + 7 + 8, {"causal": True, "kv_len": 8}),
        (1 + 2 + 2 + 2, {"causal": True, "window": 2}),
        (2 * 4, {"window": 2}),
        (8, {"q_len": 1, "kv_len": 8, "causal": True}),
        (3, {"q_len": 1, "kv_len": 8, "causal": True, "window": 3}),
        (1 + 2 + 3 + 4, {"causal": True, "window": 100}),
    ],
)
def test_attention_counts_the_pairs_under_the_mask(pairs: int, columns: dict[str, object]):
    assert attention(**columns)[0] == 4 * 8 * pairs


def test_attention_backward_is_five_products():
    assert attention(direction="backward")[0] == 2.5 * attention()[0]
    assert attention(direction="bwd")[0] == attention(direction="backward")[0]


def test_grouped_heads_share_their_keys():
    assert attention(heads=8, kv_heads=2, batch=3)[1] == 3 * 2 * 2 * (8 * 4 * 8 + 2 * 4 * 8)


def test_an_fp8_cache_is_half_the_bytes():
    assert attention(q_len=1, kv_len=1000, kv_dtype="fp8")[1] == 2 * 2 * 8 + 2 * 1000 * 8


def test_moe_counts_the_tokens_copies_and_the_experts_they_reach():
    flops, size = work(family="moe", dtype="bf16", tokens=10000, hidden=64, inter=32, topk=2, experts=4)
    assert flops == 6 * 20000 * 64 * 32
    assert size == pytest.approx(4 * 3 * 64 * 32 * 2 + 2 * 10000 * 64 * 2)


def test_copies_within_a_gpu_read_and_write():
    assert work(family="memcpy", bytes=100, copy_kind="DtoD")[1] == 200
    assert work(family="memcpy", bytes=100, copy_kind="HtoD")[1] == 100


def test_a_convolution_takes_the_traffic_it_is_told():
    assert work(family="conv", dtype="fp16", m=8, n=4, k=9, bytes=50) == (2 * 8 * 4 * 9, 50)


def test_what_lacks_a_dimension_has_no_work():
    assert work(family="gemm", dtype="bf16", m=8, n=8) == (None, None)
    assert work(family="gemm", m=8, n=8, k=8) == (None, None)
    assert work(family="other") == (None, None)
