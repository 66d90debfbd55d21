"""Reductions, scans, sorts and losses."""

from tracekit.workload.ops.vector import INDEX_BYTES, Columns, Traffic, columns_of, largest_of, size_of
from tracekit.workload.signature import Signature


def traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Every input read once; the output is small."""
    largest = largest_of(signature.tensors)
    return columns_of(largest.shape, flops=largest.numel, bytes_=size_of(signature.tensors, item_bytes))


def _scan(signature: Signature, item_bytes: int) -> Columns | None:
    """The input read once, an output like it written."""
    tensor = signature.tensor(0)
    if tensor is None:
        return None
    bytes_ = tensor.size_bytes(item_bytes) + tensor.numel * tensor.item_bytes(item_bytes)
    return columns_of(tensor.shape, flops=tensor.numel, bytes_=bytes_)


def _sort(signature: Signature, item_bytes: int) -> Columns | None:
    """The input read once, values and their indices written."""
    tensor = signature.tensor(0)
    if tensor is None:
        return None
    bytes_ = tensor.size_bytes(item_bytes) + tensor.numel * (tensor.item_bytes(item_bytes) + INDEX_BYTES)
    return columns_of(tensor.shape, flops=tensor.numel, bytes_=bytes_)


def _nll(target: int) -> Traffic:
    """One element per row is read, or written, at the row's target, which is the argument ``target``."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        targets = signature.at(target)
        if not targets:
            return None
        rows = targets[0].numel
        return columns_of((rows,), flops=rows, bytes_=rows * (item_bytes + INDEX_BYTES))

    return columns


TRAFFIC: dict[str, Traffic] = {
    **dict.fromkeys(("aten::cumsum", "aten::cumprod", "aten::logcumsumexp", "aten::_logcumsumexp"), _scan),
    "aten::sort": _sort,
    "aten::nll_loss_forward": _nll(1),
    "aten::nll_loss2d_forward": _nll(1),
    "aten::nll_loss_backward": _nll(2),
    "aten::nll_loss2d_backward": _nll(2),
}
