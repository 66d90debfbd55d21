"""The optimizers that a captured step may end with: what they launch, and the states that they keep.

PyTorch's own run on tensors without data. What one kernel does for many tensors, or bitsandbytes' kernel for one, is
built by hand::

    adamw          _foreach_lerp_ | _foreach_addcmul_ | ...      an op for lists of tensors
    fused-adamw    _fused_adamw_                                 one op for all
    adamw-8bit     optimizer_update_8bit_blockwise | ...         one op for each parameter
    muon           lerp | norm | 5 x (mm, addmm, addmm) | ...    for each matrix, then AdamW for the rest
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.capturing.calls import Call
from tracekit.capturing.ops import TYPES, name_type, round_to_block
from tracekit.capturing.options import ADAMW_8BIT, FUSED, MUON
from tracekit.errors import CaptureError
from tracekit.messages import models as messages

FUSED_LISTS = {"adamw": 4, "adam": 4, "sgd": 3}
"""Lists of tensors that it goes through: parameters, gradients and states."""
MOMENTS = 2
"""States of Adam."""
SINGLE_BYTES = 4

BLOCK_ELEMENTS = 256
"""Elements of a state of 8 bits that share a scale (bitsandbytes 0.49, optim/optimizer.py, ``blocksize``)."""
MIN_8BIT_ELEMENTS = 4096
"""Of a parameter, below which bitsandbytes keeps its states in fp32 (``min_8bit_size``)."""
CODES = 256
"""Values that a state of 8 bits may have."""
SCALARS_8BIT, SCALARS_32BIT = 7, 13
"""Arguments of bitsandbytes' ops behind the states, up to the next tensor or the end."""


@dataclass(frozen=True)
class Update:
    """What updates the trained parameters.

    Attributes:
        run: Runs it on tensors without data; None where ``calls`` are all of it.
        calls: Calls behind all that ran.
        state_bytes: States that a step begins with.
    """

    run: Callable[[], None] | None = None
    calls: tuple[Call, ...] = ()
    state_bytes: int = 0


def build_update(torch: Any, name: str | None, model: Any, trained: Sequence[Any]) -> Update:
    """Build the update of an optimizer.

    Args:
        torch: PyTorch.
        name: The optimizer, as :class:`~tracekit.capturing.options.CaptureOptions` has it.
        model: The model, which tells embeddings and output head apart from other matrices.
        trained: Its parameters with gradients.

    Raises:
        CaptureError: The optimizer can't update this model, or PyTorch lacks it.
    """
    if name is None or not trained:
        return Update()
    if name == ADAMW_8BIT:
        sizes = [one.numel() for one in trained]
        return Update(None, tuple(map(_build_8bit_call, trained)), sum(map(_count_8bit_bytes, sizes)))
    if name == MUON:
        return _build_muon(torch, model, trained)
    plain = name.removeprefix(FUSED)
    held = _count_state_bytes(trained, FUSED_LISTS[plain] - 2)
    if name != plain:
        return Update(None, (build_fused_call(plain, trained),), held)
    optimizers = {
        "adamw": lambda: torch.optim.AdamW(trained, foreach=True),
        "adam": lambda: torch.optim.Adam(trained, foreach=True),
        "sgd": lambda: torch.optim.SGD(trained, lr=0.1, momentum=0.9, foreach=True),
    }
    return Update(_begin(torch, trained, optimizers[plain]()), (), held)


def _begin(torch: Any, trained: Sequence[Any], *optimizers: Any) -> Callable[[], None]:
    """Return the optimizers' steps as they are in the middle of a job: the first one makes the states."""

    def step() -> None:
        for one in optimizers:
            one.step()

    for parameter in trained:
        parameter.grad = torch.empty_like(parameter)
    step()
    for one in optimizers:
        one.zero_grad()
    return step


def _build_muon(torch: Any, model: Any, trained: Sequence[Any]) -> Update:
    """Build Muon's update of matrices, and AdamW's of all else: embeddings, the output head, norms, stacked experts."""
    from tracekit.capturing.narrow_products import find_output_head

    if not hasattr(torch.optim, "Muon"):
        raise CaptureError(messages.MUON_NEEDS_TORCH())
    embeddings = [one for one in model.modules() if isinstance(one, torch.nn.Embedding)]
    kept = {id(one.weight) for one in (*embeddings, find_output_head(model)) if one is not None}
    matrices = [one for one in trained if one.dim() == 2 and id(one) not in kept]
    if not matrices:
        raise CaptureError(messages.MUON_WITHOUT_MATRICES())
    ours = {id(one) for one in matrices}
    others = [one for one in trained if id(one) not in ours]
    optimizers = [torch.optim.Muon(matrices), *([torch.optim.AdamW(others, foreach=True)] if others else ())]
    held = _count_state_bytes(matrices, 1) + _count_state_bytes(others, MOMENTS)
    return Update(_begin(torch, trained, *optimizers), (), held)


def build_fused_call(name: str, parameters: Sequence[Any], dtype: Any = None) -> Call:
    """Build the call of a fused optimizer's step: one kernel for all parameters.

    The parameters are updated in ``dtype``; by default in their own.
    """
    lists, shapes = FUSED_LISTS[name], [list(parameter.shape) for parameter in parameters]
    types = [name_type(dtype or parameters[0].dtype)] * lists
    return Call(f"aten::_fused_{name}_", [shapes] * lists, types, [""] * lists, ("multi_tensor_apply_kernel",))


def _build_8bit_call(parameter: Any) -> Call:
    """Build the call of bitsandbytes' op for a parameter, with its arguments as PyTorch's profiler notes them."""
    import torch

    shape, kind = list(parameter.shape), name_type(parameter.dtype)
    single = TYPES[torch.float32]
    if parameter.numel() < MIN_8BIT_ELEMENTS:
        dims = [[], shape, shape, shape, shape, *([[]] * SCALARS_32BIT)]
        types = ["", kind, kind, single, single, "", *(["Scalar"] * (SCALARS_32BIT - 1))]
        op, kernel = "bitsandbytes::optimizer_update_32bit", "kOptimizer32bit2State"
    else:
        scales = [_count_blocks(parameter.numel())]
        dims = [[], shape, shape, shape, shape, *([[]] * SCALARS_8BIT), [CODES], [CODES], scales, scales, [], [], []]
        state = TYPES[torch.uint8]
        types = ["", kind, kind, state, state, *(["Scalar"] * SCALARS_8BIT), *([single] * 4), *(["Scalar"] * 3)]
        op, kernel = "bitsandbytes::optimizer_update_8bit_blockwise", "kOptimizerStatic8bit2StateBlockwise"
    return Call(op, dims, types, [""] * len(dims), (kernel,))


def _count_blocks(elements: int) -> int:
    return -(-elements // BLOCK_ELEMENTS)


def _count_8bit_bytes(elements: int) -> int:
    """Return the bytes of a parameter's states, each with its scales."""
    if elements < MIN_8BIT_ELEMENTS:
        return MOMENTS * round_to_block(SINGLE_BYTES * elements)
    return MOMENTS * (round_to_block(elements) + round_to_block(SINGLE_BYTES * _count_blocks(elements)))


def _count_state_bytes(parameters: Sequence[Any], states: int) -> int:
    """Return the bytes of states that have the parameters' type."""
    return states * sum(round_to_block(one.numel() * one.element_size()) for one in parameters)
