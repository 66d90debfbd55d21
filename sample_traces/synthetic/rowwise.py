"""Norms, losses, embeddings and reductions: kernels that walk over rows."""

import math
from collections.abc import Callable

from sample_traces.synthetic.cpp import ANONYMOUS, AT, BF16, instance
from sample_traces.synthetic.gpu import SMS, Kernel
from sample_traces.synthetic.ops import Op

INPUTS = f"{BF16} const*, {BF16} const*"


def layer_norm(op: Op) -> list[Kernel]:
    """Normalize each row in one block."""
    elements, tensor_bytes = op.sizes()[0]
    name = (
        f"void {ANONYMOUS}vectorized_layer_norm_kernel<{BF16}, float>"
        f"(int, float, {INPUTS}, {BF16} const*, float*, float*, {BF16}*)"
    )
    grid = (elements // op.dims(0)[-1], 1, 1)
    return [Kernel(name, grid, (32, 4, 1), 34, 24, 8 * elements, 2 * tensor_bytes)]


def layer_norm_backward(op: Op) -> list[Kernel]:
    """Compute gradients in two kernels: one for the input's gradient one for those of weight and bias."""
    elements, tensor_bytes = op.sizes()[0]
    width = op.dims(0)[-1]
    for_input = (
        f"void {ANONYMOUS}layer_norm_grad_input_kernel_vectorized<{BF16}, float>"
        f"({INPUTS}, float const*, float const*, {BF16} const*, {BF16}*, int)"
    )
    for_weights = (
        f"void {ANONYMOUS}GammaBetaBackwardCUDAKernel_32x32<{BF16}, float>"
        f"(long, long, {INPUTS}, float const*, float const*, {BF16}*, {BF16}*)"
    )
    return [
        Kernel(for_input, (elements // width, 1, 1), (128, 1, 1), 32, 16, 8 * elements, 3 * tensor_bytes),
        Kernel(for_weights, (width // 32, 1, 1), (32, 32, 1), 40, 8704, 4 * elements, 2 * tensor_bytes),
    ]


def log_softmax(op: Op) -> list[Kernel]:
    """Keep each row in shared memory."""
    return _softmax(op, "Forward", "(float*, float const*, int)", 2)


def log_softmax_backward(op: Op) -> list[Kernel]:
    """Read the gradient and the result of the forward pass."""
    return _softmax(op, "Backward", "(float*, float const*, float const*, long)", 3)


def nll_loss(op: Op) -> list[Kernel]:
    """Average the loss over all rows in one block."""
    name = (
        f"void {ANONYMOUS}nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>"
        "(float*, float*, float const*, long const*, float const*, bool, long, long, long, long)"
    )
    rows = op.dims(0)[0]
    return [Kernel(name, (1, 1, 1), (32, 1, 1), 34, 256, rows, 12 * rows)]


def nll_loss_backward(op: Op) -> list[Kernel]:
    """Write one gradient a row."""
    name = (
        f"void {ANONYMOUS}nll_loss_backward_reduce_cuda_kernel_2d<float, long>"
        "(float*, float const*, long const*, float const*, float const*, bool, int, int, long, long)"
    )
    rows = op.dims(1)[0]
    return [Kernel(name, (1, 1, 1), (32, 1, 1), 32, 0, rows, 12 * rows)]


def index_select(op: Op) -> list[Kernel]:
    """Gather rows of the embedding."""
    width, (rows,) = op.dims(0)[1], op.dims(2)
    items = (BF16, f"{BF16} const", "long const")
    tensors = ", ".join(f"at::cuda::detail::TensorInfo<{item}, unsigned int>" for item in items)
    name = (
        f"void {ANONYMOUS}indexSelectLargeIndex<{BF16}, long, unsigned int, 2, 2, -2, true>"
        f"({tensors}, int, int, unsigned int, unsigned int, long)"
    )
    grid = (min(math.ceil(rows * width / 128), 8 * SMS), 1, 1)
    return [Kernel(name, grid, (128, 1, 1), 32, 0, 0, 4 * rows * width + 8 * rows)]


def embedding_backward(op: Op) -> list[Kernel]:
    """Sum gradients of rows by the single kernel that PyTorch takes for up to 3072 indices."""
    elements, tensor_bytes = op.sizes()[0]
    width = op.dims(0)[-1]
    name = (
        f"void {ANONYMOUS}embedding_backward_feature_kernel<{BF16}, float, long>"
        f"(long const*, {BF16} const*, {BF16}*, int, long, int)"
    )
    moved_bytes = 3 * tensor_bytes + 8 * elements // width
    return [Kernel(name, (math.ceil(width / 32), 1, 1), (32, 16, 1), 40, 4096, elements, moved_bytes)]


def cat(op: Op) -> list[Kernel]:
    """Copy all inputs in one launch; a list too long for the profiler holds the norms, one number each."""
    inputs = op.dims(0) or [[1]]
    batch = "128, 1" if len(inputs[0]) == 1 else "64, 64"
    item = f"{ANONYMOUS}OpaqueType<2u>"
    name = (
        f"void {ANONYMOUS}CatArrayBatchedCopy<{item}, unsigned int, {len(inputs[0])}, {batch}>({item}*, "
        f"{ANONYMOUS}CatArrInputTensorMetadata<{item}, unsigned int, {batch}>, "
        f"{ANONYMOUS}TensorSizeStride<unsigned int, 4u>, int, unsigned int)"
    )
    elements = sum(math.prod(dims) for dims in inputs)
    return [Kernel(name, (2 * SMS, len(inputs), 1), (512, 1, 1), 29, 0, 0, 4 * elements)]


def sum_rows(op: Op) -> list[Kernel]:
    """Sum over the first dimension: the gradient of a bias or of what was broadcast."""
    elements, tensor_bytes = op.sizes()[0]
    rows = op.dims(0)[0]
    columns = elements // rows
    functor = f"{AT}sum_functor<{BF16}, float, {BF16}>::operator()(at::TensorIterator&)"
    name = _reduction("128, 4", f"{AT}func_wrapper_t<{BF16}, {functor}::{{lambda(float, float)#1}}>", BF16)
    grid = (math.ceil(columns / 128), math.ceil(rows / 256), 1)
    return [Kernel(name, grid, (32, 4, 1), 46, 2064, elements, tensor_bytes + 2 * columns)]


def reduce_all(operation: str, result: str) -> Callable[[Op], list[Kernel]]:
    """Return the maker for a reduction of a short tensor in one block."""

    def make(op: Op) -> list[Kernel]:
        elements, tensor_bytes = op.sizes()[0]
        threads = min(512, 32 * math.ceil(elements / 32))
        name = _reduction("512, 1", f"{AT}{operation}", result)
        return [Kernel(name, (1, 1, 1), (threads, 1, 1), 32, 16 + 8 * threads, elements, tensor_bytes)]

    return make


def _softmax(op: Op, direction: str, parameters: str, passes: int) -> list[Kernel]:
    elements, tensor_bytes = op.sizes()[0]
    rows, classes = op.dims(0)
    epilogue = f"{ANONYMOUS}LogSoftMax{direction}Epilogue"
    name = f"void {ANONYMOUS}cunn_SoftMax{direction}Smem<4, float, float, float, {epilogue}>{parameters}"
    shared_bytes = 4 * classes + 128
    return [Kernel(name, (rows, 1, 1), (1024, 1, 1), 32, shared_bytes, 5 * elements, passes * tensor_bytes)]


def _reduction(threads: str, operation: str, result: str) -> str:
    reduction = f"{AT}ReduceOp<{BF16}, {operation}, unsigned int, {result}, 4>"
    return f"void {instance(f'{AT}reduce_kernel', threads, reduction)}({reduction})"
