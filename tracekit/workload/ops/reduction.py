"""Compute the traffic of reductions, scans, sorts and losses."""

from tracekit.workload.ops.memory_traffic import (
    INDEX_BYTES,
    Columns,
    TrafficFormula,
    build_traffic_columns,
    find_largest,
    sum_bytes,
)
from tracekit.workload.signature import Signature


def compute_traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the traffic of a reduction: every input read once; the output is small."""
    largest = find_largest(signature.tensors)
    return build_traffic_columns(largest.shape, flops=largest.numel, bytes_=sum_bytes(signature.tensors, item_bytes))


def _compute_scan(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a scan: the input read once, an output like it written."""
    tensor = signature.get_tensor(0)
    if tensor is None:
        return None
    bytes_ = tensor.compute_bytes(item_bytes) + tensor.numel * tensor.get_item_bytes(item_bytes)
    return build_traffic_columns(tensor.shape, flops=tensor.numel, bytes_=bytes_)


def _compute_sort(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a sort: the input read once, values and their indices written."""
    tensor = signature.get_tensor(0)
    if tensor is None:
        return None
    bytes_ = tensor.compute_bytes(item_bytes) + tensor.numel * (tensor.get_item_bytes(item_bytes) + INDEX_BYTES)
    return build_traffic_columns(tensor.shape, flops=tensor.numel, bytes_=bytes_)


def _make_nll_loss(target: int) -> TrafficFormula:
    """Make the formula of a loss that reads or writes one element per row, at the index in the argument ``target``."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        targets = signature.get_tensors(target)
        if not targets:
            return None
        rows = targets[0].numel
        return build_traffic_columns((rows,), flops=rows, bytes_=rows * (item_bytes + INDEX_BYTES))

    return columns


TRAFFIC: dict[str, TrafficFormula] = {
    **dict.fromkeys(("aten::cumsum", "aten::cumprod", "aten::logcumsumexp", "aten::_logcumsumexp"), _compute_scan),
    "aten::sort": _compute_sort,
    "aten::nll_loss_forward": _make_nll_loss(1),
    "aten::nll_loss2d_forward": _make_nll_loss(1),
    "aten::nll_loss_backward": _make_nll_loss(2),
    "aten::nll_loss2d_backward": _make_nll_loss(2),
}
