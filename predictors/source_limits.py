"""Limit times on a target by those measured on the source: by the order of GPUs, and by what differs of siblings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from predictors.arrays import Floats
from predictors.hardware import Hardware
from predictors.model import KernelsOnGpus
from predictors.peers import Peers
from predictors.transfer import compare_gpus, compute_sibling_ratios
from predictors.weights_file import load_hardware


class SourceLimits(NamedTuple):
    """Least and largest ratio of each distinct kernel's time on the target to the measured one."""

    least: Floats
    most: Floats


def compute_source_limits(runs: KernelsOnGpus, peers: Peers, source: Hardware, target: Hardware) -> SourceLimits:
    """Compute the limits of kernels on a target.

    A GPU that is no worse than the source takes at most what was measured, one that is no better at least. The ratio
    of the times of siblings stays within the largest ratio of any resource, so a kernel of fixed time gains nothing.
    What limits a GPU also limits those that are no worse than it from above, and those that are no better from below.

    Args:
        runs: The kernels.
        peers: Their times on other GPUs.
        source: GPU that was measured.
        target: GPU to predict.
    """
    least, most = np.zeros(runs.table.height), np.full(runs.table.height, np.inf)
    for gpu, is_lower, is_upper in _list_limiting_gpus(peers, source, target):
        its_least, its_most = _compare_with_source(runs, source, gpu)
        rows = peers.are_comparable(target, gpu) | (gpu.architecture != source.architecture)
        if is_lower:
            least = np.where(rows, np.fmax(least, its_least), least)
        if is_upper:
            most = np.where(rows, np.fmin(most, its_most), most)
    return SourceLimits(least, most)


def _list_limiting_gpus(peers: Peers, source: Hardware, target: Hardware) -> Iterator[tuple[Hardware, bool, bool]]:
    """List GPUs whose limits matter for a target, and whether the lower or the upper ones do."""
    order = peers.order
    yield target, True, True
    if source.slug not in order.better:
        return
    known = {slug for slug, architecture in order.architectures.items() if architecture == source.architecture}
    slower = {slug for slug, better in order.delivering.items() if source.slug in better}
    for slug in order.list_better(target.gpu):
        if slug != source.slug and slug in known | slower:
            yield load_hardware(slug), True, False
    for slug in order.list_worse(target.gpu):
        if slug != source.slug and slug in known | set(order.delivering[source.slug]):
            yield load_hardware(slug), False, True


def _compare_with_source(runs: KernelsOnGpus, source: Hardware, gpu: Hardware) -> tuple[Floats, Floats]:
    here, there = (runs.split_for_gpu(one) for one in (gpu, source))
    rank = compare_gpus(gpu, source)
    least, most = np.zeros(runs.table.height), np.full(runs.table.height, np.inf)
    if any(rank):
        rate = here.dtype.map(gpu.get_tflops) / there.dtype.map(source.get_tflops)
        least = np.where((rate <= 1) & rank.worse, 1.0, least)
        most = np.where((rate >= 1) & rank.better, 1.0, most)
    if gpu.architecture == source.architecture:
        its_least, its_most = compute_sibling_ratios(here, source, gpu)
        least, most = np.fmax(least, its_least), np.fmin(most, its_most)
    return least, most
