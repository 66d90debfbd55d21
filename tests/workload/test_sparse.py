"""2:4 sparse products: half as deep, and their factor read as it is stored."""

import pytest

from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

HALF, SHORT, INT8 = "c10::Half", "short", "signed char"
CUSPARSELT = (
    "sm80_xmma_sparse_gemm_f16f16_f16f32_f32_tt_t_tilesize128x128x64_stage3_warpsize2x2x1_sptensor16x8x32"
    "_execute_kernel_5x_cusparselt"
)
CUTLASS = "void cutlass::Kernel<cutlass::gemm::kernel::SparseGemmWithEpilogueVisitor<cutlass::half_t>>(T1::Params)"

# 20 tokens, 64 deep, 48 wide. In: the dense factor; 48 x 32 elements and 48 x 4 groups of places. Out: 20 x 48.
BYTES = 2 * (20 * 64 + 48 * 32 + 48 * 4 + 20 * 48)


@pytest.mark.parametrize(
    ("op", "kernel", "dims", "types", "bytes_"),
    [
        ("_sparse_semi_structured_linear", CUTLASS, [[4, 5, 64], [48, 32], [48, 4]], [HALF, HALF, SHORT], BYTES),
        ("_sparse_semi_structured_mm", CUTLASS, [[48, 32], [48, 4], [64, 20]], [HALF, SHORT, HALF], BYTES),
        (
            "_sparse_semi_structured_addmm",
            CUTLASS,
            [[48], [48, 32], [48, 4], [64, 20]],
            [HALF, HALF, SHORT, HALF],
            BYTES,
        ),
        ("_cslt_sparse_mm", CUSPARSELT, [[48 * 64 * 9 // 16], [64, 20]], [HALF, HALF], BYTES),
        # Places of 8-bit elements take a sixteenth more; what comes out is at least 16 bits wide.
        (
            "_cslt_sparse_mm",
            CUSPARSELT.replace("f16f16_f16f32_f32", "i8i8_i8i32_f32"),
            [[48 * 64 * 10 // 16], [64, 20]],
            [INT8, INT8],
            64 * 20 + 48 * 40 + 2 * 20 * 48,
        ),
    ],
)
def test_a_sparse_product_is_half_as_deep(op, kernel, dims, types, bytes_):
    builder = TraceBuilder().op(f"aten::{op}", 0, 50, dims=dims, types=types).kernel(kernel, 60, 30, launch=10)
    row = build_kernel_table(builder.load().rank()).row(0, named=True)
    assert [row[name] for name in ("family", "m", "n", "k", "bytes")] == ["gemm", 20, 48, 32, bytes_]
    assert row["dtype"] == ("int8" if "i8i8" in kernel else "fp16")


def test_factors_that_do_not_fit_are_left_alone():
    dims = [[20, 60], [48, 32], [48, 4]]
    builder = TraceBuilder().op("aten::_sparse_semi_structured_linear", 0, 50, dims=dims, types=[HALF, HALF, SHORT])
    assert build_kernel_table(builder.kernel(CUTLASS, 60, 30, launch=10).load().rank())["m"].to_list() == [None]
