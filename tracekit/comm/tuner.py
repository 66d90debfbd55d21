"""Model NCCL's choice inside a node: its tuner takes the algorithm it estimates to be fastest, often not the fastest.

The estimate of each algorithm and protocol is linear in the bytes, so each is chosen in one range of sizes. Numbers
from NCCL's src/graph/tuning.cc and src/graph/search.cc, June 2026.

    estimate
      |   LL (steep)    LL128      Simple (flat)
      |  chosen while   chosen     chosen
      |  lowest         next       last
      +------------|------------|-----------> bytes
"""

from collections.abc import Mapping

import numpy as np

from tracekit.arrays import Bools, Floats
from tracekit.comm.collective_calls import CollectiveCalls, CollectiveLinks

BASE_US = {"ring/LL": 6.6, "ring/LL128": 14.0, "ring/Simple": 8.4, "nvls/Simple": 25.0}
HOP_US = {"ring/LL": 0.6, "ring/LL128": 1.9, "ring/Simple": 3.4, "nvls/Simple": 0.0}
PCIE_HOP_US = {"ring/LL": 1.0, "ring/LL128": 2.5, "ring/Simple": 5.7, "nvls/Simple": 0.0}

RING_RATE_FRACTION = 0.8
"""Fraction of the datasheet's rate that NCCL assigns to its rings: 240 of 300 GB/s, 360 of 450, 720 of 900."""

MAX_LL_GBPS = {7: 39.0, 8: 87.7, 9: 141.0, 10: 282.0}
"""Upper limit of the tuner's rate for LL, by major compute capability."""

LL128_FRACTION = 0.92
MAX_LL128_GBPS = 16 * 36.7
"""Upper limit of the tuner's rate for LL128: Hopper's per channel, times the 16 channels of a Blackwell, where the
limit binds."""

NVLS_FRACTION = {9: 0.85 * 7 / 8, 10: 0.74 * 7 / 8}
"""Fraction of both directions of the links, by major compute capability; one of eight channels is not counted."""

MAX_DIRECT_LL_BYTES = 16384
"""Maximum bytes for one peer that LL sends (src/enqueue.cc)."""


def find_size_ranges(
    usable: Mapping[str, Bools], calls: CollectiveCalls, links: CollectiveLinks
) -> dict[str, tuple[Floats, Floats]]:
    """Return the range of message sizes in bytes in which each algorithm and protocol is chosen.

    Args:
        usable: Mask of the calls that can run it, by name such as 'ring/LL' or 'direct/Simple'.
        calls: Collectives on one node; their bytes don't matter.
        links: Links of NVIDIA GPUs.

    Returns:
        Start and end by name. An algorithm that is never chosen has a start at or after its end.
    """
    zero, ever = np.zeros_like(calls.ranks), np.full_like(calls.ranks, np.inf)
    if "direct/LL" in usable:
        peers = 1.0 if calls.collective == "send_recv" else calls.ranks
        most = MAX_DIRECT_LL_BYTES * peers + zero
        return {"direct/LL": (zero, most), "direct/Simple": (np.nextafter(most, np.inf), ever)}
    guesses = {name: _estimate_cost(name, where, calls, links) for name, where in usable.items()}
    found = {}
    for name, (latency_us, per_byte_us) in guesses.items():
        start, end = zero, ever
        for other_us, other_per_byte_us in guesses.values():
            with np.errstate(divide="ignore", invalid="ignore"):
                meet = (latency_us - other_us) / (other_per_byte_us - per_byte_us)
            start = np.where(other_per_byte_us > per_byte_us, np.maximum(start, meet), start)
            end = np.where(other_per_byte_us < per_byte_us, np.minimum(end, meet), end)
        found[name] = start, end
    return found


def _estimate_cost(name: str, usable: Bools, calls: CollectiveCalls, links: CollectiveLinks) -> tuple[Floats, Floats]:
    """Return the tuner's latency and time per byte; the latency is infinite where the algorithm cannot run."""
    steps = np.maximum(calls.rounds * (calls.ranks - 1), 1)
    hop_us = np.where(links.is_pcie, PCIE_HOP_US[name], HOP_US[name])
    rate = _estimate_gbps(name, links) * calls.ranks / steps
    return np.where(usable, BASE_US[name] + hop_us * steps, np.inf), np.where(usable, 1 / (rate * 1e3), 0.0)


def _estimate_gbps(name: str, links: CollectiveLinks) -> Floats:
    rings = RING_RATE_FRACTION * links.gbps
    if name == "ring/LL":
        return np.minimum(rings / 2, MAX_LL_GBPS[min(max(links.compute_capability_major, 7), 10)])
    if name == "ring/LL128":
        return np.minimum(LL128_FRACTION * rings, MAX_LL128_GBPS)
    if name == "nvls/Simple":
        return 2 * NVLS_FRACTION[min(links.compute_capability_major, 10)] * rings
    return rings
