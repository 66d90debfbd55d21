"""Sampling of [N, C, ...] at the points of a grid [N, ..., 2 or 3], forward and backward.

Each output element is a weighted sum of its neighbours. They may lie anywhere: the input is read once at most, and no
more of it than there are neighbours.
"""

import math

from tracekit.workload.ops.vector import Columns, Traffic, columns_of
from tracekit.workload.signature import Signature

NEIGHBOURS: dict[int | None, int] = {0: 2, 1: 1, 2: 4}
"""Along each axis, by interpolation_mode: linear, nearest, cubic."""


def _sampled(*, x: int = 0, grid: int = 1, mode: int | None = 2, dy: int | None = None) -> Traffic:
    """The traffic of an op, by the places of its arguments.

    Args:
        x: Input.
        grid: Points.
        mode: Interpolation; linear where the op takes none.
        dy: The output's gradient, of a backward op; its last argument says which gradients are wanted.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        source, points = signature.at(x), signature.at(grid)
        along = NEIGHBOURS.get(0 if mode is None else signature.whole(mode))
        if not source or not points or along is None:
            return None
        size, corners = source[0].item_bytes(item_bytes), along ** (len(source[0].shape) - 2)
        shape = (*source[0].shape[:2], *points[0].shape[1:-1])
        read = min(source[0].numel, corners * math.prod(shape)) * size + points[0].size_bytes(item_bytes)
        flops, moved = 2 * corners * math.prod(shape), math.prod(shape) * size
        if dy is not None:
            wanted = signature.value(len(signature.dims) - 1)
            both = wanted if wanted in ([True, False], [False, True]) else [True, True]
            flops *= sum(both)
            moved += both[0] * source[0].numel * size + both[1] * points[0].size_bytes(item_bytes)
            read -= 0 if both[1] else min(source[0].numel, corners * math.prod(shape)) * size
        return columns_of(shape, flops=flops, bytes_=read + moved)

    return columns


TRAFFIC: dict[str, Traffic] = {
    "aten::grid_sampler_2d": _sampled(),
    "aten::grid_sampler_3d": _sampled(),
    "aten::cudnn_grid_sampler": _sampled(mode=None),
    "aten::grid_sampler_2d_backward": _sampled(x=1, grid=2, mode=3, dy=0),
    "aten::grid_sampler_3d_backward": _sampled(x=1, grid=2, mode=3, dy=0),
    "aten::cudnn_grid_sampler_backward": _sampled(mode=None, dy=2),
}
