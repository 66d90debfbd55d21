"""Fuse a step's calls as torch.compile does: what goes through elements and rows between products becomes one kernel.

Inductor fuses a pointwise op, a reduction over rows or a copy with what computed its inputs. Nothing is fused across a
product, a convolution or attention. So calls that are connected, with as many of these before them, are one kernel::

    product 0 -> add -> layer norm -> product 1 -> gelu -> product 2
                [-- one kernel --]                [one]

Evidence: a compiled GPT-2's training on an H100 and an H200 (tests/validation/results/whole_jobs/captured_steps.md).
Inductor's own scheduling, which needs a GPU, also limits the size of kernels and reads some inputs anew.
"""

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from tracekit.capturing.calls import Call

FUSIBLE_KERNEL = re.compile(
    r"^(vectorized_elementwise_kernel|elementwise_kernel|direct_copy_kernel|reduce_kernel|softmax_kernel|norm_kernel|"
    r"vectorized_layer_norm_kernel|layer_norm_grad_input_kernel|batch_norm_\w+|bn_(fw|bw)_\w+|triu_tril_kernel|"
    r"RowwiseMoments\w+|CatArrayBatchedCopy\w*|flip_kernel|embedding_kernel)$"
)
"""The first kernel of calls that Inductor writes its own kernels for."""
NOT_FUSIBLE_OP = re.compile(r"^aten::(_foreach|_fused_|embedding_dense_backward|index_put|scatter|sort|topk|nonzero)")
ROW_KERNEL = re.compile(r"reduce|softmax|norm|bn_|Rowwise")
MAX_NAMED_OPS = 5
"""Of a kernel, in its name."""


@dataclass
class _Group:
    """Calls of one kernel.

    Attributes:
        level: How many products lie before them, on the longest way from the step's inputs.
        calls: Their places.
    """

    level: int
    calls: list[int] = field(default_factory=list)


def fuse_calls(calls: Sequence[Call], eager: Container[int] = ()) -> list[tuple[int, Call]]:
    """Fuse a step's calls.

    ``eager`` are the places of calls outside of what is compiled.

    Returns:
        The calls that are left, each with the place of the last one that is in it.
    """
    groups = _group_calls(calls, eager)
    readers: dict[int, set[int]] = {}
    for place, call in enumerate(calls):
        for one in call.reads:
            readers.setdefault(one.number, set()).add(place)
    fused = {place for group in groups for place in group.calls}
    left = [(place, call) for place, call in enumerate(calls) if place not in fused]
    made = [(group.calls[-1], _build_kernel(calls, group, readers)) for group in groups]
    return sorted([*left, *made], key=lambda pair: pair[0])


def find_unmade_buffers(calls: Sequence[Call], eager: Container[int] = ()) -> frozenset[int]:
    """Find the memory that only calls of one kernel write and read, which is never allocated.

    Args:
        calls: The step's calls.
        eager: Places of those outside of what is compiled.
    """
    readers: dict[int, set[int]] = {}
    writers: dict[int, set[int]] = {}
    for place, call in enumerate(calls):
        for users, operands in ((readers, call.reads), (writers, call.writes)):
            for one in operands:
                users.setdefault(one.number, set()).add(place)
    found: set[int] = set()
    for group in _group_calls(calls, eager):
        inside = set(group.calls)
        made = {one.number for place in group.calls for one in calls[place].writes}
        found |= {one for one in made if readers.get(one) and (readers[one] | writers[one]) <= inside}
    return frozenset(found)


def _group_calls(calls: Sequence[Call], eager: Container[int]) -> list[_Group]:
    """Group the calls that are fused with others, or written anew."""
    level: dict[int, int] = {}  # of each buffer, by its number
    member: dict[int, _Group] = {}  # of each buffer, the group that writes it
    groups: list[_Group] = []
    first_level, is_backward = 0, False
    for place, call in enumerate(calls):
        if call.is_backward != is_backward:
            # Forward and backward passes are compiled apart.
            first_level, is_backward = 1 + max(level.values(), default=0), call.is_backward
        here = max([first_level, *(level.get(one.number, 0) for one in call.reads)])
        if place in eager or not _is_fusible(call):
            for one in call.writes:
                level[one.number] = here + 1
                member.pop(one.number, None)
            continue
        sources = [member[one.number] for one in call.reads if one.number in member]
        same_level = list({id(group): group for group in sources if group.level == here}.values())
        group = same_level[0] if same_level else _Group(here)
        if not same_level:
            groups.append(group)
        for other in same_level[1:]:
            group.calls = sorted([*group.calls, *other.calls])
            groups.remove(other)
            member.update({number: group for number, one in member.items() if one is other})
        group.calls.append(place)
        for one in call.writes:
            level[one.number], member[one.number] = here, group
    return groups


def _is_fusible(call: Call) -> bool:
    return bool(call.kernels and FUSIBLE_KERNEL.match(call.kernels[0])) and not NOT_FUSIBLE_OP.match(call.op)


def _build_kernel(calls: Sequence[Call], group: _Group, readers: dict[int, set[int]]) -> Call:
    """Build the call of a fused kernel: it reads what others made, and writes what others read or nobody does."""
    inside, members = set(group.calls), [calls[place] for place in group.calls]
    made = {one.number for call in members for one in call.writes}
    reads = {one.number: one for call in members for one in call.reads if one.number not in made}
    written = [one for call in members for one in call.writes]
    # What nobody reads is a result.
    writes = {one.number: one for one in written if not readers.get(one.number) or readers[one.number] - inside}
    buffers = [*reads.values(), *writes.values()]
    largest = max((one.numel for call in members for one in (*call.reads, *call.writes)), default=1)
    kind = "per" if any(ROW_KERNEL.search(name) for call in members for name in call.kernels) else "poi"
    ops = dict.fromkeys(call.op.removeprefix("aten::").strip("_") for call in members)
    name = f"triton_{kind}_fused_{'_'.join([*ops][:MAX_NAMED_OPS])}_{group.calls[0]}"
    return Call(
        name,
        [*(list(one.shape) for one in buffers), []],
        [*(one.dtype for one in buffers), "Scalar"],
        [*("" for _ in buffers), str(largest)],
        (name,),
        [*(list(one.strides) for one in buffers), []],
        is_backward=members[0].is_backward,
    )
