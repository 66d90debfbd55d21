"""Put times into the order of the GPUs: none takes longer than one that it equals or beats, nor than was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import NamedTuple

import numpy as np
import polars as pl

from predictors.arrays import Bools, Floats
from predictors.gpu_order import ENGINE_LAWS, NEVER
from predictors.hardware import Hardware
from predictors.model import KernelsOnGpus, ModelTimes, evaluate_kernels
from predictors.transfer import compare_gpus, compute_sibling_ratios
from predictors.weights_file import Weights, load_hardware

MAX_KEPT_ROWS = 16384
"""Up to how many distinct kernels the times on a GPU are kept for further targets: 90 MB of those on all GPUs."""
FEW_ROWS = 1024
"""Up to how many distinct kernels all are evaluated on a GPU that is asked for some of them again, and kept: a call's
own time outweighs that of its rows."""
MAX_SHARED = 8
"""How many tables of few kernels are kept for equal ones: at most 10 MB each."""


class Peers:
    """The model's times of some kernels on several GPUs, in the order of the datasheets.

    Args:
        weights: Fitted numbers, without calibrations.
    """

    def __init__(self, runs: KernelsOnGpus, weights: Weights) -> None:
        self.runs = runs
        self._weights = weights
        self.order = weights.order
        self._evaluated: dict[Hardware, ModelTimes] = {}
        self._asked: set[Hardware] = set()
        self._ordered: dict[Hardware, ModelTimes] = {}

    def evaluate(self, gpu: Hardware) -> ModelTimes:
        """Return the model's times on a GPU in the order of the datasheets."""
        if gpu in self._ordered:
            return self._ordered[gpu]
        times = self._evaluate_all(gpu)
        times = replace(times, time_us=self._order_times(gpu, times))
        if self.runs.table.height <= MAX_KEPT_ROWS:
            self._ordered[gpu] = times
        return times

    def evaluate_calibrated(self, gpu: Hardware, weights: Weights) -> ModelTimes:
        """Return the same, but where calibrations say something of the GPU, what they say."""
        ordered = self.evaluate(gpu)
        if not weights.calibrated:
            return ordered
        times = evaluate_kernels(self.runs.split_for_gpu(gpu), gpu, weights)
        own = times.kernels.find_calibrated(gpu, weights)
        return replace(times, time_us=np.where(own, times.time_us, ordered.time_us))

    def _order_times(self, gpu: Hardware, times: ModelTimes) -> Floats:
        """Return the model's times on a GPU in the order of the datasheets.

        Of two predictions that contradict the order, the slower one is the safer. But GPUs of which a law was measured
        are not moved by those of which it wasn't:

        - A GPU takes at least as long as each that is no worse; a measured one, as each such one that was measured.
        - It takes at most as long as each measured one that it is no worse than.

        Both bounds follow the order, so what meets both does. For example, a measured GPU takes 8 us. Of two better
        GPUs that nobody measured, one is predicted to take 9 us, and the best one 7 us: they take 8 us and 7 us.

        Other GPUs are evaluated for the kernels that may contradict only (``GpuOrder.raised_by`` and ``capped_by``).
        """
        own_us, own = times.time_us, self._is_measured(gpu)
        time = self._raise_times(gpu, own_us)
        for slug, ranges in self.order.list_capping(gpu.gpu, self.runs.split_for_gpu(gpu).kind.categories).items():
            rows = self._find_rows(gpu, own_us, ranges) & ~own
            if not rows.any():
                continue
            base = load_hardware(slug)
            rows &= self._is_measured(base) & self.are_comparable(gpu, base)
            time = np.where(rows, np.fmin(time, self._raise_times(base, self._evaluate_rows(base, rows))), time)
        return np.fmax(time, times.bound_us)

    def _raise_times(self, gpu: Hardware, own_us: Floats) -> Floats:
        """Return times that are at least those on each GPU that is no worse and may be predicted slower."""
        time, kinds = own_us, self.runs.split_for_gpu(gpu).kind.categories
        for slug, ranges in self.order.list_raising(gpu.gpu, kinds).items():
            rows = self._find_rows(gpu, own_us, ranges)
            if rows.any():
                peer = load_hardware(slug)
                rows &= self.are_comparable(gpu, peer) & (~self._is_measured(gpu) | self._is_measured(peer))
                time = np.where(rows, np.fmax(time, self._evaluate_rows(peer, rows)), time)
        return time

    def _find_rows(self, gpu: Hardware, own_us: Floats, ranges: Mapping[str, Sequence[float]]) -> Bools:
        """Return which kernels' times on a GPU are within the range of their kind."""
        kind = self.runs.split_for_gpu(gpu).kind
        if ranges.keys().isdisjoint(kind.categories):
            return np.zeros(own_us.size, dtype=np.bool_)
        least, most = np.array([ranges.get(name or "", NEVER) for name in kind.categories]).T[:, kind.codes]
        return np.asarray((own_us >= least) & (own_us <= most))

    def _evaluate_rows(self, gpu: Hardware, rows: Bools) -> Floats:
        """Return the model's times of some kernels on a GPU; NaN elsewhere."""
        if gpu in self._evaluated or (gpu in self._asked and self.runs.table.height <= FEW_ROWS):
            return np.where(rows, self._evaluate_all(gpu).time_us, np.nan)
        self._asked.add(gpu)
        return evaluate_kernels(self.runs.split_for_gpu(gpu).select(rows), gpu, self._weights).time_us

    def _evaluate_all(self, gpu: Hardware) -> ModelTimes:
        """Return the model's times of all kernels on a GPU, whatever the order of the datasheets."""
        if gpu in self._evaluated:
            return self._evaluated[gpu]
        times = evaluate_kernels(self.runs.split_for_gpu(gpu), gpu, self._weights)
        if self.runs.table.height <= FEW_ROWS:
            self._evaluated[gpu] = times
        return times

    def list_bordering(self, target: Hardware, groups: Callable[[Hardware], Hashable]) -> list[Hardware]:
        """Return the worst of the GPUs that are no worse than a target, of each group but the target's own.

        ``groups`` maps a GPU to its group. If times of a group's GPUs are in order, these are the group's longest.
        """
        found: list[Hardware] = []
        of_group = defaultdict[Hashable, list[str]](list)
        for slug in self.order.list_better(target.gpu):
            of_group[groups(load_hardware(slug))].append(slug)
        of_group.pop(groups(target), None)
        for slugs in of_group.values():
            worst: list[str] = []
            for slug in slugs:
                if not any(slug in self.order.better[other] for other in worst):
                    worst = [other for other in worst if other not in self.order.better[slug]] + [slug]
            found += map(load_hardware, worst)
        return found

    def group_alike(self, gpu: Hardware) -> tuple[object, ...]:
        """Return what GPUs have in common that run all kernels alike."""
        return gpu.architecture, id(self.runs.split_for_gpu(gpu))

    def are_comparable(self, one: Hardware, other: Hardware) -> Bools:
        """Return which kernels run alike on two GPUs: by the same law, and engines' kernels on one architecture."""
        mine, its = (self.runs.split_for_gpu(gpu) for gpu in (one, other))
        same = mine.have_law_of(its)
        return same if one.architecture == other.architecture else same & ~mine.law.is_in(*ENGINE_LAWS)

    def _is_measured(self, gpu: Hardware) -> Bools:
        """Return of which kernels the laws were measured well on a GPU or its twin."""
        return self.runs.split_for_gpu(gpu).law.map(lambda law: gpu.slug in self.order.measured.get(law or "", ()))


_shared: dict[Hashable, Peers] = {}
_sharing = Lock()


def share_peers(table: pl.DataFrame, weights: Weights) -> Peers:
    """Return the model's times of kernels; of few, those that were asked for before of equal kernels.

    Ranks of a job run the same kernels, and a report asks for those that a prediction asked for.

    Args:
        table: From ``kernels.complete_columns``, without measurements.
        weights: Fitted numbers, without calibrations.
    """
    if table.height > FEW_ROWS:
        return Peers(KernelsOnGpus(table), weights)
    key = id(weights), tuple(table.schema.items()), table.hash_rows().to_numpy().tobytes()
    with _sharing:
        found = _shared.pop(key, None) or Peers(KernelsOnGpus(table), weights)
        _shared[key] = found
        if len(_shared) > MAX_SHARED:
            del _shared[next(iter(_shared))]
    return found


class SourceLimits(NamedTuple):
    """Least and largest ratio of each distinct kernel's time on the target to the measured one."""

    least: Floats
    most: Floats


def compute_source_limits(runs: KernelsOnGpus, peers: Peers, source: Hardware, target: Hardware) -> SourceLimits:
    """Compute the limits of kernels on a target.

    A GPU that is no worse than the source takes at most what was measured, one that is no better at least. The ratio
    of the times of siblings stays within the largest ratio of any resource, so a kernel of fixed time gains nothing.
    What limits a GPU also limits those that are no worse than it from above, and those that are no better from below.
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
