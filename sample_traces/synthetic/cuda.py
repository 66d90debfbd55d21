"""Rewrite the ops of a CPU run into those that the same program runs on a CUDA GPU."""

from collections.abc import Callable
from dataclasses import replace

from sample_traces.synthetic import attention, dense, multi_tensor, pointwise, rowwise
from sample_traces.synthetic.cpp import AT, BF16
from sample_traces.synthetic.gpu import Kernel
from sample_traces.synthetic.ops import Op, call, number, tensor

KERNELS: dict[str, Callable[[Op], list[Kernel]]] = {
    "aten::_foreach_add_": multi_tensor.foreach(
        "Metadata<1>", f"BinaryOpScalarFunctor<{BF16}, 1, 1, 0>", "std::plus<float>", "float"
    ),
    "aten::_foreach_addcdiv_": multi_tensor.foreach(
        "ScalarListMetadata<float, 3>",
        f"PointwiseOpScalarListFunctor<{BF16}, 3, 3, 0>",
        "std::divides<float>",
    ),
    "aten::_foreach_addcmul_": multi_tensor.foreach(
        "Metadata<3>", f"PointwiseOpScalarFunctor<{BF16}, 3, 3, 0>", "std::multiplies<float>", "float"
    ),
    "aten::_foreach_div_": multi_tensor.foreach(
        "ScalarListMetadata<float, 1>", f"BinaryOpScalarListFunctor<{BF16}, 1, 1, 0>", "std::divides<float>"
    ),
    "aten::_foreach_lerp_": multi_tensor.foreach(
        "Metadata<2>", f"TernaryOpScalarFunctor<{BF16}, 2, 2, 0>", f"{AT}LerpFunctor<float>", "float"
    ),
    "aten::_foreach_mul_": multi_tensor.multiply,
    "aten::_foreach_norm": multi_tensor.norm,
    "aten::_foreach_sqrt": multi_tensor.foreach("Metadata<2>", f"UnaryOpFunctor<{BF16}, 2, 1, 1>", f"{AT}Sqrt<float>"),
    "aten::_log_softmax": rowwise.log_softmax,
    "aten::_log_softmax_backward_data": rowwise.log_softmax_backward,
    "aten::add": pointwise.add,
    "aten::add_": pointwise.add,
    "aten::addmm": dense.addmm,
    "aten::arange": pointwise.arange,
    "aten::argmax": rowwise.reduce_all("ArgMaxOps<float>", "long"),
    "aten::cat": rowwise.cat,
    "aten::clamp": pointwise.pointwise(pointwise.CLAMP),
    "aten::copy_": pointwise.copy,
    "aten::embedding_dense_backward": rowwise.embedding_backward,
    "aten::fill_": pointwise.fill,
    "aten::gelu": pointwise.pointwise(pointwise.GELU),
    "aten::gelu_backward": pointwise.pointwise(pointwise.GELU_BACKWARD),
    "aten::index_select": rowwise.index_select,
    "aten::linalg_vector_norm": rowwise.reduce_all(f"NormTwoOps<{BF16}, float, {BF16}>", BF16),
    "aten::mm": dense.mm,
    "aten::mul": pointwise.pointwise(pointwise.MULTIPLY),
    "aten::native_layer_norm": rowwise.layer_norm,
    "aten::native_layer_norm_backward": rowwise.layer_norm_backward,
    "aten::nll_loss_backward": rowwise.nll_loss_backward,
    "aten::nll_loss_forward": rowwise.nll_loss,
    "aten::reciprocal": pointwise.pointwise(pointwise.RECIPROCAL),
    "aten::sum": rowwise.sum_rows,
}

# What an op that launches kernels still calls on CUDA; the rest is how the CPU computes it.
KEPT_CHILDREN = {
    "aten::arange": ("aten::resize_",),
    "aten::embedding_dense_backward": ("aten::zeros",),
    "aten::index_select": ("aten::empty",),
    "aten::native_layer_norm": ("aten::empty", "aten::view"),
    "aten::nll_loss_backward": ("aten::zero_",),
}


def to_cuda(op: Op) -> Op:
    """Return the op as it would run on a CUDA GPU, with its kernels."""
    if op.name in _REWRITES:
        return _REWRITES[op.name](op)
    if op.name.startswith("Optimizer.step"):
        return replace(op, children=[_in_optimizer(child) for child in op.children])
    kernels = KERNELS[op.name](op) if op.name in KERNELS else []
    kept = [child for child in op.children if not kernels or child.name in KEPT_CHILDREN.get(op.name, ())]
    return replace(
        op,
        name=op.name.replace("FlashAttentionForCpu", "FlashAttention"),
        children=[to_cuda(child) for child in kept],
        kernels=kernels,
    )


def _in_optimizer(op: Op) -> Op:
    """Rewrite an op of the optimizer: AdamW counts its steps in tensors without dimensions, which stay on the CPU."""
    on_gpu = any(elements > 1 for part in op.walk() for elements, _ in part.sizes())
    return to_cuda(op) if on_gpu else op


def _zero(op: Op) -> Op:
    """Rewrite a zeroing: CUDA fills where the CPU clears a small tensor without a further op."""
    return replace(op, children=[to_cuda(call("aten::fill_", [tensor(op, 0), number(0)]))])


def _read_back(op: Op) -> Op:
    return replace(op, read_back_bytes=op.sizes()[0][1])


_REWRITES: dict[str, Callable[[Op], Op]] = {
    "aten::_local_scalar_dense": _read_back,
    "aten::_scaled_dot_product_flash_attention_for_cpu": attention.forward,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": attention.backward,
    "aten::zero_": _zero,
}
