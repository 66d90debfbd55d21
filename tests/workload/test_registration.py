"""An op with a formula reaches it with its kernels, whatever these are called."""

from typing import get_args

import pytest

from predictors.kernels import MEMORY_FAMILIES, REQUIRED_COLUMNS, TENSOR_FAMILIES
from tests.kernels import kernel_of, only
from tracekit.workload.op_work import OP_FAMILY_RULES, classify_activity, classify_op
from tracekit.workload.ops.registry import OP_KERNELS, OPS, ProductFamily, TrafficFamily, op, op_kernels

NAMES = {
    "gemm": "ampere_sgemm_64x64_nn", "conv": "void at::native::im2col_kernel<float>", "attention": "flash_fwd_kernel",
    "moe": "fused_moe_kernel", "elementwise": "vectorized_elementwise_kernel", None: "my_kernel",
}  # fmt: skip
"""A kernel's name of each family, and one that tells none."""


@pytest.fixture
def registry(monkeypatch):
    """Registries that a test may add to."""
    monkeypatch.setattr("tracekit.workload.ops.registry.OP_KERNELS", dict(OP_KERNELS))
    registered = dict(OPS)
    classify_op.cache_clear()
    classify_activity.cache_clear()
    yield
    OPS.clear()
    OPS.update(registered)
    classify_op.cache_clear()
    classify_activity.cache_clear()


@pytest.mark.parametrize("name", NAMES.values())
def test_traffic_is_of_a_family_that_takes_bytes(name):
    families = {
        called: classify_activity("kernel", name, called) for called, known in OPS.items() if not known.is_product
    }
    assert {called: family for called, family in families.items() if family not in MEMORY_FAMILIES} == {}


@pytest.mark.parametrize("name", [NAMES["gemm"], NAMES[None]])
def test_a_product_has_the_family_of_its_formula(name):
    products = {called: known.family for called, known in OPS.items() if known.is_product}
    assert {called: classify_activity("kernel", name, called) for called in products} == products


def test_families_are_those_that_are_modelled():
    assert set(get_args(ProductFamily)) <= set(TENSOR_FAMILIES)
    assert set(get_args(TrafficFamily)) <= set(MEMORY_FAMILIES)
    assert {family for family, _ in OP_FAMILY_RULES} <= REQUIRED_COLUMNS.keys()


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("name", ["aten::mm", "aten::max_pool2d_with_indices", "mylib::product_of_mine"])
def test_an_op_is_registered_once(name):
    op("mylib::product_of_mine", family="gemm")(lambda _: None)
    with pytest.raises(ValueError, match=f"{name} is registered twice"):
        op(name, family="conv")(lambda _: None)


@pytest.mark.usefixtures("registry")
def test_kernels_of_an_op_are_registered_once():
    with pytest.raises(ValueError, match="fb::offsets_range is registered twice"):
        op_kernels("offsets_range", libraries=["fb"])(("offsets", lambda *_: None))


def test_a_formula_needs_a_family():
    with pytest.raises(ValueError, match="mylib::mm: 'gem' is no family"):
        op("mylib::mm", family="gem")
    with pytest.raises(TypeError, match="family"):
        op("mylib::mm")


# torch.nn.Unfold of [2, 8, 16, 16] by 3 x 3: 4096 elements become 2 x 72 x 256.
@pytest.mark.usefixtures("registry")
def test_a_new_op_needs_no_more_than_its_entry():
    @op("aten::im2col", "mylib::unfold", family="copy")
    def unfold(signature, item_bytes):
        return {"rows": 144, "cols": 256, "flops": 0, "bytes": item_bytes * (4096 + 36864)}

    for name in ("aten::im2col", "mylib::unfold"):
        row = kernel_of(name, NAMES["conv"], [[2, 8, 16, 16], [], [], [], []])
        assert only(row, "family", "bytes") == ("copy", 4 * 40960)


FP8, BF16 = "c10::Float8_e4m3fn", "c10::BFloat16"


@pytest.mark.parametrize(
    ("op", "dims", "types", "flags"),
    [
        ("hipblaslt_gemm_fp8", [[8192, 3072], [], [12288, 3072], []], [FP8, "float"] * 2, ("False", "True")),
        ("hipblaslt_gemm_fp8", [[8192, 3072], [8192, 1], [12288, 3072], [12288, 1]], [FP8, "float"] * 2,
         ("False", "True")),
        ("hipblaslt_gemm_fp8", [[3072, 8192], [], [3072, 12288], []], [FP8, "float"] * 2, ("True", "False")),
        ("hipblaslt_gemm_fp4", [[8192, 1536], [8192, 96], [12288, 1536], [12288, 96]],
         ["c10::Float4_e2m1fn_x2", "c10::Float8_e8m0fnu"] * 2, ("False", "True")),
        ("hipblaslt_gemm", [[8192, 3072], [3072, 12288]], [BF16] * 2, ("False", "False")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("library", ["primus_turbo", "primus_turbo_cpp_extension"])
def test_products_of_primus(library, op, dims, types, flags):
    called = [*dims, *[[]] * 5]
    kernel = "Cijk_Alik_Bljk_F8BS_BH_UserArgs_MT256x256x128_MI16x16x1"
    row = kernel_of(f"{library}::{op}", kernel, called, [*types, *["Scalar"] * 5],
                    [*[""] * len(dims), "15", *flags, "False", "1"])  # fmt: skip
    assert only(row, "family", "m", "n", "k") == ("gemm", 8192, 12288, 3072)
    assert 2 * 8192 * 12288 * 3072 == 618_475_290_624
