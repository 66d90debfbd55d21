"""The kernels of `_foreach_` ops, each of which works on chunks of many tensors."""

from collections.abc import Callable, Iterator

from sample_traces.synthetic.cpp import ANONYMOUS, AT, BF16, instance
from sample_traces.synthetic.gpu import Kernel
from sample_traces.synthetic.ops import Op

CHUNK_ELEMENTS = 65536
MAX_BLOCKS = 320
MAX_TENSORS = {1: 110, 2: 64, 3: 48}


def foreach(metadata: str, functor: str, *parameters: str) -> Callable[[Op], list[Kernel]]:
    """Return the maker for an op that reads its tensor lists and writes one of that size."""
    types = (f"{ANONYMOUS}TensorList{metadata}", f"{ANONYMOUS}{functor}", *parameters)
    name = f"void {instance(f'{ANONYMOUS}multi_tensor_apply_kernel', *types)}({', '.join(types)})"

    def make(op: Op) -> list[Kernel]:
        lists = op.args["Input type"].count("TensorList")
        return [
            Kernel(name, (blocks, 1, 1), (512, 1, 1), 34, 0, elements, 2 * elements * (lists + 1))
            for blocks, elements in _launches(_tensor_elements(op), MAX_TENSORS[lists])
        ]

    return make


def multiply(op: Op) -> list[Kernel]:
    """Multiply by a number or by a tensor of one element."""
    if op.dtype(1) == "Scalar":
        functor, parameters = "BinaryOpScalarFunctor", ["float"]
    else:
        functor, parameters = "BinaryOpScalarTensorFunctor", [f"{BF16}*", "float"]
    make = foreach("Metadata<1>", f"{functor}<{BF16}, 1, 1, 0>", "std::multiplies<float>", *parameters)
    return make(op)


def norm(op: Op) -> list[Kernel]:
    """Sum the squares of each chunk, then those of each tensor."""
    functor = f"LpNormFunctor<{BF16}, ({AT}NormType)1, {BF16}, 1, 1, 0>"
    tensors = len(_tensor_elements(op))
    cleanup = (
        f"void {AT}lpnorm_cleanup<{BF16}, ({AT}NormType)1, {BF16}, float>(float const*, {AT}TensorListAddresses, int)"
    )
    return [
        *foreach("Metadata<1>", functor, "float*", "int")(op),
        Kernel(cleanup, (tensors, 1, 1), (512, 1, 1), 32, 2048, 0, 1280 * tensors),
    ]


def _tensor_elements(op: Op) -> list[int]:
    """Return the size of each tensor, from the CPU's calls: the profiler notes no shapes of a long list."""
    return [max(elements for part in child.walk() for elements, _ in part.sizes()) for child in op.children]


def _launches(sizes: list[int], max_tensors: int) -> Iterator[tuple[int, int]]:
    """Yield blocks and elements of each launch: a launch is full after so many blocks or tensors."""
    blocks = elements = tensors = 0
    for size in sizes:
        for start in range(0, size, CHUNK_ELEMENTS):
            blocks += 1
            elements += min(CHUNK_ELEMENTS, size - start)
            if blocks == MAX_BLOCKS:
                yield blocks, elements
                blocks = elements = tensors = 0
        tensors += 1
        if tensors == max_tensors and blocks:
            yield blocks, elements
            blocks = elements = tensors = 0
    if blocks:
        yield blocks, elements
