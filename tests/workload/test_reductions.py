"""Bytes of reductions and scans, worked out by hand."""

import pytest

from tests.kernels import kernel_of

LIST, NO_DTYPE = "ScalarList", ""


def reduce_kernel(read):
    wrapper = f"at::native::func_wrapper_t<{read}, at::native::sum_functor<{read}> >"
    return f"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<{read}, {wrapper}, unsigned int, {read}, 4> >"


@pytest.mark.parametrize(
    ("dtype", "read", "item"),
    [("int", "long", 8), ("bool", "long", 8), ("unsigned char", "__int64", 8), ("int", "float", 4),
     ("c10::BFloat16", "c10::BFloat16", 2), ("int", "scalar_t", 4)],
)  # fmt: skip
def test_a_sum_reads_what_its_input_was_cast_to(dtype, read, item):
    types, concrete = [dtype, LIST, "Scalar", NO_DTYPE], ["", "[1]", "False", ""]
    row = kernel_of("aten::sum", reduce_kernel(read), [[6, 65536], [], [], []], types, concrete)
    assert row["bytes"] == item * (6 * 65536 + 6)


@pytest.mark.parametrize(
    ("op", "dims", "concrete", "moved"),
    [
        # 4 bytes for each element read and written; places in the input have 8.
        ("aten::sum", [[4, 8], []], ["", ""], 4 * (32 + 1)),
        ("aten::sum", [[4, 8], [], [], []], ["", "[]", "False", ""], 4 * (32 + 1)),
        ("aten::mean", [[4, 8], [], [], []], ["", "[-2]", "True", ""], 4 * (32 + 8)),
        ("aten::amax", [[4, 8], [], []], ["", "[0, 1]", "False"], 4 * (32 + 1)),
        ("aten::max", [[4, 8], [], []], ["", "1", "False"], 4 * (32 + 4) + 8 * 4),
        ("aten::argmax", [[4, 8], [], []], ["", "", "False"], 4 * 32 + 8),
        ("aten::norm", [[4, 8], [], [], []], ["", "2", "[1]", "False"], 4 * (32 + 4)),
        # The result is an argument.
        ("aten::sum", [[4, 8], [], [], [], [4]], ["", "[1]", "False", "", ""], 4 * (32 + 4)),
        # Before arguments were recorded: at least one element.
        ("aten::sum", [[4, 8], [], [], []], None, 4 * (32 + 1)),
    ],
)
def test_a_reduction_writes_its_result(op, dims, concrete, moved):
    types = ["float" if shape else "Scalar" for shape in dims]
    assert kernel_of(op, reduce_kernel("float"), dims, types, concrete)["bytes"] == moved


@pytest.mark.parametrize(
    ("dtype", "asked", "item"),
    [("int", "", 8), ("bool", "", 8), ("int", "3", 4), ("float", "", 4), ("c10::Half", "6", 4), ("long", "", 8)],
)
def test_a_scan_reads_and_writes_the_type_of_its_result(dtype, asked, item):
    kernel = "void at::native::tensor_kernel_scan_innermost_dim<long, std::plus<long> >"
    row = kernel_of("aten::cumsum", kernel, [[32, 64], [], []], [dtype, "Scalar", ""], ["", "1", asked])
    assert row["bytes"] == 2 * item * 32 * 64
