"""Compute sampling of [N, C, ...] at the points of a grid [N, ..., 2 or 3], forward and backward.

Each output element is a weighted sum of its neighbours, which may lie anywhere. The input is read at most once, and no
more of it than there are neighbours.
"""

import math

from tracekit.workload.ops.memory_traffic import Columns, TrafficFormula, build_traffic_columns
from tracekit.workload.signature import Signature

NEIGHBOURS_PER_AXIS: dict[int | None, int] = {0: 2, 1: 1, 2: 4}
"""Neighbours along each axis, by interpolation_mode: linear, nearest, cubic."""


def _make_grid_sampler(*, x: int = 0, grid: int = 1, mode: int | None = 2, dy: int | None = None) -> TrafficFormula:
    """Make the formula of an op from the positions of its arguments.

    Args:
        x: Position of the input.
        grid: Position of the points.
        mode: Position of the interpolation mode; linear if the op has none.
        dy: Position of the output's gradient in a backward op, whose last argument says which gradients are wanted.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        source, points = signature.get_tensors(x), signature.get_tensors(grid)
        along = NEIGHBOURS_PER_AXIS.get(0 if mode is None else signature.get_integer(mode))
        if not source or not points or along is None:
            return None
        size, corners = source[0].get_item_bytes(item_bytes), along ** (len(source[0].shape) - 2)
        shape = (*source[0].shape[:2], *points[0].shape[1:-1])
        read = min(source[0].numel, corners * math.prod(shape)) * size + points[0].compute_bytes(item_bytes)
        flops, moved = 2 * corners * math.prod(shape), math.prod(shape) * size
        if dy is not None:
            wanted = signature.get_value(len(signature.dims) - 1)
            both = wanted if wanted in ([True, False], [False, True]) else [True, True]
            flops *= sum(both)
            moved += both[0] * source[0].numel * size + both[1] * points[0].compute_bytes(item_bytes)
            read -= 0 if both[1] else min(source[0].numel, corners * math.prod(shape)) * size
        return build_traffic_columns(shape, flops=flops, bytes_=read + moved)

    return columns


TRAFFIC: dict[str, TrafficFormula] = {
    "aten::grid_sampler_2d": _make_grid_sampler(),
    "aten::grid_sampler_3d": _make_grid_sampler(),
    "aten::cudnn_grid_sampler": _make_grid_sampler(mode=None),
    "aten::grid_sampler_2d_backward": _make_grid_sampler(x=1, grid=2, mode=3, dy=0),
    "aten::grid_sampler_3d_backward": _make_grid_sampler(x=1, grid=2, mode=3, dy=0),
    "aten::cudnn_grid_sampler_backward": _make_grid_sampler(mode=None, dy=2),
}
