"""Kernel names that contradict the op above; times in microseconds."""

import pytest

from tests.codes import list_codes
from tracekit.reporting import build_report
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

CLAMP = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::launch_clamp_scalar(at::TensorIteratorBase&)>(int)"
)
GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)"
BF16 = "c10::BFloat16"
SQUARE = [512, 512]
OPS = {
    "aten::mm": [SQUARE, SQUARE],
    "aten::relu": [SQUARE],
    "aten::_softmax": [SQUARE],
    "aten::native_layer_norm": [SQUARE],
    "aten::cudnn_convolution": [[8, 16, 32, 32], [16, 16, 3, 3]],
    "aten::gelu": [SQUARE],
}


def run_of(*pairs: tuple[str, str], shapes: bool = True) -> TraceBuilder:
    """Each op with a kernel of some name."""
    builder = TraceBuilder()
    for i, (op, name) in enumerate(pairs):
        at = 100.0 * i
        dims = OPS[op] if shapes else None
        builder.op(op, at, 30, dims=dims, types=[BF16] * len(OPS[op]) if shapes else None)
        builder.kernel(name, at + 20, 70, launch=at + 5)
    return builder


def families(builder: TraceBuilder, *without: str) -> list[str]:
    return prepare_run(builder.load(), without_rules=without).kernels["family"].to_list()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (CLAMP, ["gemm", "elementwise", "softmax", "norm", "conv", "elementwise"]),
        (GEMM, ["gemm", "elementwise", "softmax", "norm", "conv", "elementwise"]),
        (SOFTMAX, ["gemm", "elementwise", "softmax", "norm", "conv", "elementwise"]),
        (NORM, ["gemm", "elementwise", "softmax", "norm", "conv", "elementwise"]),
    ],
)
def test_one_name_on_all_kernels_makes_no_op_another(name: str, expected: list[str]) -> None:
    builder = run_of(*[(op, name) for op in OPS])
    assert families(builder) == expected
    assert families(builder, "op-over-name") != expected
    run = prepare_run(builder.load())
    assert "kernel-names-contradicted" in list_codes(build_report(run).warnings)
    product = run.kernels.row(0, named=True)
    assert (product["m"], product["n"], product["k"], product["dtype"]) == (512, 512, 512, "bf16")


def test_right_names_stay() -> None:
    right = (GEMM, CLAMP, SOFTMAX, NORM, GEMM, CLAMP)
    builder = run_of(*zip(OPS, right, strict=True))
    run = prepare_run(builder.load())
    assert run.kernels["name"].to_list() == list(right)
    assert "kernel-names-contradicted" not in list_codes(build_report(run).warnings)


def test_a_name_of_one_kind_of_op_only_stays() -> None:
    """A product may run in a kernel of a strange name, if nothing else does."""
    assert prepare_run(run_of(("aten::mm", CLAMP), ("aten::mm", CLAMP)).load()).kernels["name"].to_list() == [CLAMP] * 2


def test_a_product_with_helpers_beside_it_keeps_all_names() -> None:
    builder = run_of(("aten::relu", CLAMP))
    builder.op("aten::mm", 200, 60, dims=[SQUARE, SQUARE], types=[BF16] * 2)
    builder.kernel(CLAMP, 220, 5, launch=205).kernel(GEMM, 230, 70, launch=215)
    assert prepare_run(builder.load()).kernels["name"].to_list() == [CLAMP, CLAMP, GEMM]


def test_a_product_whose_kernel_was_lost_keeps_its_helpers_name() -> None:
    """Two launches and one kernel: the other one may have been the product."""
    builder = run_of(("aten::relu", CLAMP))
    builder.op("aten::mm", 200, 60, dims=[SQUARE, SQUARE], types=[BF16] * 2)
    builder.kernel(CLAMP, 220, 5, launch=205).call("cudaLaunchKernel", 215, 5)
    assert prepare_run(builder.load()).kernels["name"].to_list() == [CLAMP, CLAMP]


def test_without_shapes_names_stay() -> None:
    assert families(run_of(("aten::mm", CLAMP), ("aten::relu", CLAMP), shapes=False)) == ["elementwise"] * 2
