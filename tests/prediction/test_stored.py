"""Products with weights of four bits: how much they move with another batch, or shared out."""

import polars as pl
import pytest

from tracekit.parallelism.batch_size import scale_batch
from tracekit.parallelism.tensor_parallel import split_layers
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder

TOKENS, HIDDEN, WIDE = 16, 4096, 16384
WEIGHTS = HIDDEN * WIDE // 2 + HIDDEN * WIDE // 128 * (2 + 1 / 2)
"""Bytes, with a scale of 16 bits and a zero of 4 for every 128."""


@pytest.fixture
def decode() -> MeasuredRun:
    """Into a block and out of it, as vLLM runs AWQ."""
    builder = TraceBuilder()
    for number, (k, n) in enumerate([(HIDDEN, WIDE), (WIDE, HIDDEN)]):
        dims = [[TOKENS, k], [k, n // 8], [k // 128, n], [k // 128, n // 8], []]
        builder.op("_C::awq_gemm", 20 * number, 10, dims=dims, types=["c10::Half", "int", "c10::Half", "int", "Scalar"])
        builder.kernel("awq::gemm_forward_4bit_cuda_m16nXk32", 200 + 100 * number, 60, launch=20 * number + 2)
    return prepare_run(builder.load())


def moved(table: pl.DataFrame) -> list[int]:
    return table["bytes"].to_list()


def test_weights_are_read_once_whatever_the_batch(decode: MeasuredRun):
    assert moved(decode.kernels) == [WEIGHTS + 2 * TOKENS * (HIDDEN + WIDE)] * 2
    assert moved(scale_batch(decode.kernels, decode.trace.ops, 8.0)) == [WEIGHTS + 2 * 8 * TOKENS * (HIDDEN + WIDE)] * 2


def test_of_shared_layers_each_rank_reads_its_part_of_the_weights(decode: MeasuredRun):
    shared = split_layers(decode.kernels, pl.DataFrame(), 1, 4)
    assert moved(shared) == [WEIGHTS / 4 + 2 * TOKENS * (HIDDEN + WIDE / 4)] * 2
