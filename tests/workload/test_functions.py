"""Kernels of autograd functions that are written in Python, forward and backward; worked out by hand.

Arguments as TransformerEngine 2, Liger-Kernel 0.6, Unsloth, flash-attn 2.8 and Megatron-LM declare them.
"""

import pytest

from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

BF16, FLOAT, INT, SCALAR = "c10::BFloat16", "float", "int", "Scalar"
NVJET = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"


def kernels_of(function, inputs, gradient, forward=(), backward=(), concrete=None):
    """The kernels of a call and of its backward pass, of which only the gradient is recorded."""
    types = [BF16 if shape else SCALAR for shape in inputs]
    builder = TraceBuilder().op(function, 0, 50, dims=inputs, types=types, concrete=concrete, **{"Sequence number": 7})
    builder.op(f"autograd::engine::evaluate_function: {function}Backward", 100, 60, **{"Sequence number": 7})
    builder.op(f"{function}Backward", 101, 50, dims=[gradient], types=[BF16], **{"Sequence number": 7})
    for i, name in enumerate(forward):
        builder.kernel(name, 200 + 40 * i, 30, launch=10 + i)
    for i, name in enumerate(backward):
        builder.kernel(name, 600 + 40 * i, 30, launch=110 + i)
    return build_kernel_table(builder.load().rank()).rows(named=True)


def sizes(rows):
    return [tuple(row[name] for name in ("batch", "m", "n", "k")) for row in rows]


def test_a_linear_layer_has_the_gradients_of_its_input_and_its_weight():
    inputs = [[512, 256], [8, 4, 256], [512], []]
    rows = kernels_of("_Linear", inputs, [8, 4, 512], [NVJET], [NVJET, NVJET])
    assert sizes(rows) == [(1, 32, 512, 256), (1, 32, 256, 512), (1, 512, 256, 32)]
    assert {row["family"] for row in rows} == {"gemm"}
    assert {row["share"] for row in rows} == {1.0}


def test_kernels_of_a_compiled_region_take_no_work_from_its_inputs():
    """They are named after all that they fuse, and the region's first input may be its tokens."""
    fused = "triton_per_fused_add_native_layer_norm_native_layer_norm_backward_5"
    rows = kernels_of("CompiledFunction", [[32, 256], [8192, 512]], [32, 256, 8192], [fused], [fused])
    assert [(row["family"], row["bytes"]) for row in rows] == [("norm", None)] * 2


def test_a_frozen_layer_has_one_gradient():
    rows = kernels_of("_LayerNormLinear", [[32, 256], [256], [], [512, 256]], [32, 512], [], [NVJET])
    assert sizes(rows) == [(1, 32, 256, 512)]


def test_a_feed_forward_block_runs_two_products_and_four_gradients():
    inputs = [[8, 4, 256], [256], [], [2048, 256], [2048], [256, 1024], [256]]
    rows = kernels_of("_LayerNormMLP", inputs, [8, 4, 256], [NVJET] * 2, [NVJET] * 4)
    assert sizes(rows) == [
        (1, 32, 2048, 256),
        (1, 32, 256, 1024),
        (1, 32, 1024, 256),
        (1, 256, 1024, 32),
        (1, 32, 256, 2048),
        (1, 2048, 256, 32),
    ]


def test_products_that_cannot_be_told_apart_have_no_work():
    inputs = [[8, 4, 256], [256], [], [2048, 256], [2048], [256, 1024], [256]]
    assert sizes(kernels_of("_LayerNormMLP", inputs, [8, 4, 256], [NVJET])) == [(None,) * 4]


@pytest.mark.parametrize(("kernels", "batch", "rows"), [(1, 4, 8), (4, 1, 8)])
def test_groups_run_in_one_kernel_or_in_one_each(kernels, batch, rows):
    inputs = [[32, 256], [], *[[512, 256]] * 4]
    expected = [(batch, rows, 512, 256)] * kernels
    expected += [(batch, rows, 256, 512)] * kernels + [(batch, 512, 256, rows)] * kernels
    rows_of = kernels_of("_GroupedLinear", inputs, [32, 512], [NVJET] * kernels, [NVJET] * 2 * kernels)
    assert sizes(rows_of) == expected


def test_a_weight_gradient_has_the_rows_of_the_output():
    # Sequence parallel over two ranks: the input is half of what the product takes.
    function = "LinearWithGradAccumulationAndAsyncCommunication"
    rows = kernels_of(function, [[8, 4, 256], [512, 256], []], [16, 4, 512], [], [NVJET])
    assert sizes(rows) == [(1, 512, 256, 64)]


def test_experts_of_a_serving_engine():
    # 16 tokens, 2 of 8 experts each: 4 rows for each expert.
    dims = [[16, 256], [8, 1024, 256], [8, 256, 512], [16, 2], [16, 2], []]
    builder = TraceBuilder().op(
        "vllm::inplace_fused_experts", 0, 50, dims=dims, types=[BF16, BF16, BF16, FLOAT, INT, SCALAR]
    )
    for i in range(2):
        builder.kernel("fused_moe_kernel", 60 + 40 * i, 30, launch=10 + i)
    rows = build_kernel_table(builder.load().rank()).rows(named=True)
    assert sizes(rows) == [(8, 4, 1024, 256), (8, 4, 256, 512)]
    # A quarter of the tokens misses an expert with 0.75 ** 4.
    assert {(row["family"], row["work_low"], row["work_high"]) for row in rows} == {("gemm", 1 - 0.75**4, 1.0)}


X = 2 * 16 * 256


@pytest.mark.parametrize(
    ("function", "inputs", "kernel", "family", "bytes_"),
    [
        ("LigerRMSNormFunction", [[2, 16, 256], [256]], "_rms_norm_forward_kernel", "norm", 2 * 2 * X),
        ("Fast_RMS_Layernorm", [[2, 16, 256], [256]], "_rms_layernorm_forward", "norm", 2 * 2 * X),
        ("LigerFusedAddRMSNormFunction", [[2, 16, 256], [2, 16, 256], [256]], "_fused_add_rms_norm_forward_kernel",
         "norm", 4 * 2 * X),
        ("_LayerNormLinear", [[2, 16, 256], [256], [], [512, 256]],
         "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<transformer_engine::normalization::Kernel>",
         "norm", 2 * 2 * X),
        ("FusedRMSNormAffineFunction", [[2, 16, 256], [256]], "void cuApplyRMSNorm<float, float>", "norm",
         2 * 2 * X),
        ("LigerSiLUMulFunction", [[2, 16, 256]] * 2, "_swiglu_forward_kernel", "elementwise", 3 * 2 * X),
        ("LigerRopeFunction", [[2, 8, 16, 32], [2, 2, 16, 32], [1, 16, 32], [1, 16, 32]], "_triton_rope",
         "elementwise", 2 * 2 * (2 * 8 * 16 * 32 + 2 * 2 * 16 * 32)),
        ("LigerCrossEntropyFunction", [[32, 1000], [32]], "liger_cross_entropy_kernel", "softmax", 2 * 2 * 32000),
        ("LigerFusedLinearCrossEntropyFunction", [[32, 256], [1000, 256], [32]], "liger_cross_entropy_kernel",
         "softmax", 2 * 2 * 32000),
        ("Fast_CrossEntropyLoss", [[32, 1000], [32]], "_cross_entropy_forward", "softmax", 2 * 32000),
        ("ScaledUpperTriangMaskedSoftmax", [[8, 64, 64], []],
         "void scaled_upper_triang_masked_softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 6>", "softmax",
         2 * 2 * 8 * 64 * 64),
    ],
)  # fmt: skip
def test_passes_over_the_first_input(function, inputs, kernel, family, bytes_):
    (row,) = kernels_of(function, inputs, inputs[0], [kernel])
    assert (row["family"], row["bytes"], row["share"]) == (family, bytes_, 1.0)


@pytest.mark.parametrize(
    ("function", "inputs", "gradient", "kernel", "bytes_"),
    [
        ("LigerRMSNormFunction", [[2, 16, 256], [256]], [2, 16, 256], "_rms_norm_backward_kernel", 3 * 2 * X),
        ("LigerSiLUMulFunction", [[2, 16, 256]] * 2, [2, 16, 256], "_swiglu_backward_kernel", 5 * 2 * X),
        ("Fast_CrossEntropyLoss", [[32, 1000], [32]], [32], "_cross_entropy_backward", 2 * 2 * 32000),
    ],
)  # fmt: skip
def test_passes_of_a_backward_pass_go_over_the_forward_calls_input(function, inputs, gradient, kernel, bytes_):
    (row,) = kernels_of(function, inputs, gradient, [], [kernel])
    assert row["bytes"] == bytes_


def test_a_backward_pass_without_its_forward_call_has_no_work():
    builder = TraceBuilder().op(
        "Fast_CrossEntropyLossBackward", 0, 50, dims=[[32]], types=[BF16], **{"Sequence number": 3}
    )
    row = build_kernel_table(builder.kernel("_cross_entropy_backward", 60, 30, launch=10).load().rank()).row(
        0, named=True
    )
    assert (row["family"], row["bytes"]) == ("softmax", None)


FLASH = "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>"


@pytest.mark.parametrize(
    ("function", "inputs", "concrete"),
    [
        ("FlashAttnFunc", [[2, 128, 8, 64], [2, 128, 2, 64], [2, 128, 2, 64], [], [], []], {3: "0.", 5: "True"}),
        ("FlashAttnFunc", [[2, 128, 8, 64], [2, 128, 2, 64], [2, 128, 2, 64], [], []], {3: "0.125", 4: "True"}),
        ("FlashAttnVarlenFunc", [[256, 8, 64], [256, 2, 64], [256, 2, 64], [3], [3], *[[]] * 5],
         {5: "128", 6: "128", 9: "True"}),
        ("FusedAttnFunc", [[], [], [], [3], [3], [], [], [], [], [128, 2, 8, 64], [128, 2, 2, 64], [128, 2, 2, 64]],
         {1: "128", 2: "128"}),
    ],
)  # fmt: skip
def test_attention_forward_and_backward(function, inputs, concrete):
    values = [concrete.get(i, "") for i in range(len(inputs))]
    rows = kernels_of(function, inputs, [2, 128, 8, 64], [FLASH], [FLASH.replace("fwd", "bwd")], values)
    columns = ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "causal", "direction")
    told = [tuple(row[name] for name in columns) for row in rows]
    assert told == [(2, 8, 2, 128, 128, 64, True, way) for way in ("forward", "backward")]
