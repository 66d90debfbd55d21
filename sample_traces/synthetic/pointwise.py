"""Elementwise kernels: one thread per few elements, bound by memory."""

import math
from collections.abc import Callable

from sample_traces.synthetic.cpp import AT, BF16, dispatched, instance
from sample_traces.synthetic.gpu import Kernel
from sample_traces.synthetic.ops import ITEM_BYTES, Op

GELU = dispatched("GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)", 2, 4)
GELU_BACKWARD = dispatched(
    "GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)", 2, 4, f"{BF16}, {BF16}"
)
RECIPROCAL = dispatched("reciprocal_kernel_cuda(at::TensorIteratorBase&)", 1, 5)
CLAMP = dispatched(
    "(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, c10::Scalar, "
    "at::native::detail::ClampLimits)",
    1,
    9,
)
ARANGE = dispatched(
    "arange_cuda_out(c10::Scalar const&, c10::Scalar const&, c10::Scalar const&, at::Tensor&)", 1, 4, "long"
)
COPY = dispatched("direct_copy_kernel_cuda(at::TensorIteratorBase&)", 3, 12)
COPY_TO_FLOAT = dispatched("direct_copy_kernel_cuda(at::TensorIteratorBase&)", 3, 7, "float")
COPY_FROM_FLOAT = f"{AT}bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{{lambda(float)#1}}"
ADD = f"{AT}CUDAFunctor_add<{BF16}>"
ADD_SCALAR = f"{AT}CUDAFunctorOnSelf_add<{BF16}>"
MULTIPLY = f"{AT}AUnaryFunctor<{BF16}, {BF16}, {BF16}, at::native::binary_internal::MulFunctor<float> >"


def pointwise(functor: str) -> Callable[[Op], list[Kernel]]:
    """Return the maker for an op that writes one result of the shape of its largest input."""

    def make(op: Op) -> list[Kernel]:
        sizes = op.sizes()
        elements, result_bytes = max(sizes)
        moved_bytes = sum(tensor_bytes for _, tensor_bytes in sizes) + result_bytes
        return _elementwise(_vectorized(functor, len(sizes) + 1), elements, moved_bytes)

    return make


def add(op: Op) -> list[Kernel]:
    """Add a scalar, a tensor or one that is broadcast."""
    if op.dtype(1) not in ITEM_BYTES:
        return pointwise(ADD_SCALAR)(op)
    if op.dims(0) == op.dims(1):
        return pointwise(ADD)(op)
    (elements, result_bytes), (_, other_bytes) = op.sizes()
    return _elementwise(_strided(ADD), elements, 2 * result_bytes + other_bytes)


def copy(op: Op) -> list[Kernel]:
    """Convert between types or changes the layout."""
    (elements, written_bytes), (_, read_bytes) = op.sizes()
    if op.dtype(0) == op.dtype(1):
        name = _strided(COPY)
    elif op.dtype(0) == "float":
        name = _unrolled(COPY_TO_FLOAT)
    else:
        name = _vectorized(COPY_FROM_FLOAT, 2)
    return _elementwise(name, elements, written_bytes + read_bytes)


def fill(op: Op) -> list[Kernel]:
    """Write one value everywhere."""
    elements, written_bytes = op.sizes()[0]
    return _elementwise(_vectorized(f"{AT}FillFunctor<{op.dtype(0)}>", 1), elements, written_bytes)


def arange(op: Op) -> list[Kernel]:
    """Count up; the outer of the two nested calls only allocates."""
    if len(op.args["Input Dims"]) != 4:
        return []
    elements = int(op.args["Concrete Inputs"][1])
    parameters = f"int, {ARANGE}, function_traits<{ARANGE}>::result_type*"
    name = f"void (anonymous namespace)::elementwise_kernel_with_index<int, {ARANGE}>({parameters})"
    return [Kernel(name, (math.ceil(elements / 64), 1, 1), (64, 1, 1), 16, 0, elements, 8 * elements)]


def _elementwise(name: str, elements: int, moved_bytes: int) -> list[Kernel]:
    return [Kernel(name, (math.ceil(elements / 512), 1, 1), (128, 1, 1), 24, 0, elements, moved_bytes)]


def _vectorized(functor: str, arrays: int) -> str:
    parameters = (functor, f"std::array<char*, {arrays}ul>")
    kernel = instance(f"{AT}vectorized_elementwise_kernel", "4", *parameters)
    return f"void {kernel}(int, {', '.join(parameters)})"


def _unrolled(functor: str) -> str:
    array = "std::array<char*, 2ul>"
    offsets = ["TrivialOffsetCalculator<1, unsigned int>"] * 2
    memory = [f"{AT}memory::LoadWithCast<1>", f"{AT}memory::StoreWithCast<1>"]
    kernel = instance(f"{AT}unrolled_elementwise_kernel", functor, array, "4", *offsets, *memory)
    return f"void {kernel}(int, {', '.join([functor, array, *offsets, *memory])})"


def _strided(functor: str) -> str:
    loop = instance(f"{AT}gpu_kernel_impl_nocast", functor)
    body = f"{loop}(at::TensorIteratorBase&, {functor} const&)::{{lambda(int)#1}}"
    return f"void {AT}elementwise_kernel<128, 4, {body}>(int, {body})"
