"""Order predictions by the datasheets, among the GPUs that are no worse than a target and those that were measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from predictors.categorical import CategoricalColumn
from predictors.gpu_order import ENGINE_LAWS, compare_known, list_alike, list_architectures, list_better
from predictors.hardware import MMA_SUFFIX, Hardware
from predictors.model import KernelsOnGpus, evaluate_kernels_on_gpus
from predictors.weights_file import MAX_TWIN_SM_DIFFERENCE, Weights, load_hardware


@dataclass(frozen=True)
class Peer:
    """A GPU with the times of the distinct kernels by the model; NaN for those of laws that don't matter.

    Attributes:
        gpu: The GPU.
        time_us: Predicted times.
        bound_us: Least possible times.
    """

    gpu: Hardware
    time_us: Floats
    bound_us: Floats


class Times(NamedTuple):
    """Predicted and least possible times of some rows, in microseconds."""

    time_us: Floats
    least_us: Floats


@dataclass(frozen=True)
class _Kernels:
    """What the order needs to know of the distinct kernels on a GPU.

    Attributes:
        law: Law of each.
        group: Kernels are ordered within a group (see ``ENGINE_LAWS``).
    """

    law: CategoricalColumn
    group: Ints


class GpuOrder:
    """Orders kernels' times; each law is evaluated on each GPU once, whatever the target.

    Args:
        runs: The kernels.
        weights: Fitted numbers, without calibrations.
    """

    def __init__(self, runs: KernelsOnGpus, weights: Weights) -> None:
        self._runs = runs
        self._weights = weights
        self._peers: dict[str, Peer] = {}
        self._done: set[tuple[str, str]] = set()
        self._kernels: dict[str, _Kernels] = {}
        self._architectures: dict[str, int] = {}
        self._laws_of_anchors: dict[str, Mapping[str, set[str]]] = {}

    def order_model_times(self, target: Hardware, times: Times) -> Floats:
        """Return the distinct kernels' times by the model on a target in the order of the datasheets.

        Of two predictions that contradict the order, the slower one is the safer. But GPUs of which a law was measured
        are anchors, which GPUs without measurements don't change:

        - A GPU takes at least as long as each that is no worse; an anchor, as each such anchor.
        - It takes at most as long as each anchor that it is no worse than.

        Both bounds follow the order, so what meets both does. For example, an anchor takes 8 us. Of two better GPUs
        without measurements, one is predicted to take 9 us, and the best one 7 us: the first takes 8 us, the best 7 us.

        Args:
            target: The target.
            times: The model's times on it.
        """
        own, row = self._is_anchor(target), np.arange(times.time_us.size)
        ordered = self.raise_to_better(target, times, row, lambda peer: Times(peer.time_us, peer.bound_us), own)
        time = ordered.time_us
        for slug, laws in self._list_bases(target).items():
            base = load_hardware(slug)
            bounds = ~own & self._describe_kernels(base).law.is_in(*laws) & self.are_comparable(target, base)
            if not bounds.any():
                continue
            above = self._list_better_anchors(slug, target.vendor)
            self._evaluate(above)
            self._evaluate({slug: laws})
            time = np.where(bounds, np.fmin(time, self._predict_anchor(slug, above)), time)
        return np.where(np.isnan(times.time_us), np.nan, np.fmax(time, ordered.least_us))

    def raise_to_better(
        self,
        target: Hardware,
        times: Times,
        row: Ints,
        predict: Callable[[Peer], Times],
        anchored: Bools | None = None,
    ) -> Times:
        """Return times that are at least as long as on each GPU that is no worse.

        Args:
            target: The target.
            times: Times of the rows on it.
            row: Distinct kernel of each row.
            predict: Returns the times of the rows on a peer.
            anchored: Distinct kernels that only anchors may raise; none by default.
        """
        time, least = times
        better = list_better(target.gpu)
        self._evaluate(dict.fromkeys(better))
        for slug in better:
            there, raises = predict(self._peers[slug]), self.are_comparable(target, load_hardware(slug))
            least = np.where(raises[row], np.fmax(least, there.least_us), least)
            if anchored is not None:
                raises &= ~anchored | self._is_anchor(load_hardware(slug))
            time = np.where(raises[row], np.fmax(time, there.time_us), time)
        return Times(np.where(np.isnan(times.time_us), np.nan, time), least)

    def are_comparable(self, one: Hardware, other: Hardware) -> Bools:
        """Return which kernels are ordered between two GPUs (see ``ENGINE_LAWS``)."""
        return np.equal(self._describe_kernels(one).group, self._describe_kernels(other).group)

    def _predict_anchor(self, slug: str, above: Iterable[str]) -> Floats:
        """Return the model's times on an anchor, in order with the anchors that are no worse."""
        anchor = self._peers[slug]
        time = anchor.time_us
        for other in above:
            peer = self._peers[other]
            raises = self._is_anchor(peer.gpu) & self.are_comparable(anchor.gpu, peer.gpu)
            time = np.where(raises, np.fmax(time, peer.time_us), time)
        return time

    def _is_anchor(self, gpu: Hardware) -> Bools:
        """Return of which kernels the laws were measured well on a GPU or its twin."""
        return self._describe_kernels(gpu).law.is_in(*self._list_anchors(gpu.vendor).get(gpu.slug, ()))

    def _list_bases(self, target: Hardware) -> dict[str, set[str]]:
        """Return the best anchors that a target is no worse than: by slug, the laws that were measured there."""
        anchors = self._list_anchors(target.vendor)
        slugs, bases = list(anchors), defaultdict[str, set[str]](set)
        worse, no_worse = compare_known(slugs, target.gpu)
        worse &= np.array([slug != target.slug for slug in slugs], dtype=np.bool_)
        architectures = np.array(list_architectures(slugs, target.vendor))
        # A worse anchor takes no less than a better one, where both run the kernel by the same law.
        beats = no_worse & ~no_worse.T & (architectures[:, None] == architectures)
        for law in sorted(set().union(*anchors.values())):
            below = worse & np.array([law in anchors[slug] for slug in slugs])
            for place in np.flatnonzero(below & ~(beats & below[:, None]).any(axis=0)).tolist():
                bases[slugs[place]].add(law)
        return dict(bases)

    def _list_better_anchors(self, slug: str, vendor: str) -> dict[str, set[str]]:
        """Return the other anchors that are no worse than one: by slug, the laws that were measured there."""
        anchors = self._list_anchors(vendor)
        return {other: anchors[other] for other in list_better(load_hardware(slug).gpu) if other in anchors}

    def _list_anchors(self, vendor: str) -> Mapping[str, set[str]]:
        """Return the GPUs of a vendor on which, or on whose twin, a law was measured well: by slug, these laws."""
        if vendor not in self._laws_of_anchors:
            laws = defaultdict[str, set[str]](set)
            for law, slug in self._list_measurements():
                gpu = load_hardware(slug).gpu
                for twin in (slug, *list_alike(gpu, MAX_TWIN_SM_DIFFERENCE)) if gpu.vendor == vendor else ():
                    laws[twin].add(law)
            self._laws_of_anchors[vendor] = dict(laws)
        return self._laws_of_anchors[vendor]

    def _list_measurements(self) -> Iterator[tuple[str, str]]:
        for law, fitted in self._weights.laws.items():
            for slug in fitted.gpu:
                if slug not in fitted.sparse:
                    yield law, slug.removesuffix(MMA_SUFFIX)

    def _evaluate(self, laws_by_slug: Mapping[str, set[str] | None]) -> None:
        """Evaluate some laws, or all of them, on each of some GPUs, at once on those that run the kernels alike."""
        by_split: dict[int, list[Hardware]] = defaultdict(list)
        for slug in laws_by_slug:
            gpu = load_hardware(slug)
            by_split[id(self._runs.split_for_gpu(gpu))].append(gpu)
        for gpus in by_split.values():
            kernels = self._runs.split_for_gpu(gpus[0])
            wanted: dict[str, list[Hardware]] = {part.law: [] for part in kernels.chunks}
            for gpu in gpus:
                laws = laws_by_slug[gpu.slug]
                for law in wanted if laws is None else wanted.keys() & laws:
                    if (law, gpu.slug) not in self._done:
                        wanted[law].append(gpu)
                        self._done.add((law, gpu.slug))
            found = evaluate_kernels_on_gpus(kernels, wanted, self._weights)
            for gpu in gpus:
                self._keep(gpu, *found.get(gpu, ()))

    def _keep(self, gpu: Hardware, *found: Floats) -> None:
        unknown = np.full(self._runs.table.height, np.nan)
        known = self._peers.get(gpu.slug, Peer(gpu, unknown, unknown))
        if found:
            time_us, bound_us = found
            known = Peer(gpu, np.fmax(time_us, known.time_us), np.fmax(bound_us, known.bound_us))
        self._peers[gpu.slug] = known

    def _describe_kernels(self, gpu: Hardware) -> _Kernels:
        if gpu.slug not in self._kernels:
            law = self._runs.split_for_gpu(gpu).law
            group = self._architectures.setdefault(gpu.architecture, len(self._architectures) + 1)
            self._kernels[gpu.slug] = _Kernels(law, np.where(law.is_in(*ENGINE_LAWS), group, 0))
        return self._kernels[gpu.slug]
