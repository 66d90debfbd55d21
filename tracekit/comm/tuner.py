"""What NCCL takes inside a node: what its tuner guesses to be fastest, which is often not the fastest.

Its guess is a straight line over the bytes for each algorithm and protocol, so that each is taken in one range of
sizes. Figures of NCCL's src/graph/tuning.cc and src/graph/search.cc, June 2026.
"""

from collections.abc import Mapping

import numpy as np

from tracekit.arrays import Bools, Floats
from tracekit.comm.calls import Calls, Links

BASE_US = {"ring/LL": 6.6, "ring/LL128": 14.0, "ring/Simple": 8.4, "nvls/Simple": 25.0}
HOP_US = {"ring/LL": 0.6, "ring/LL128": 1.9, "ring/Simple": 3.4, "nvls/Simple": 0.0}
PCIE_HOP_US = {"ring/LL": 1.0, "ring/LL128": 2.5, "ring/Simple": 5.7, "nvls/Simple": 0.0}

FOUND = 0.8
"""Part of the datasheet's rate that its rings are given: 240 of 300 GB/s, 360 of 450, 720 of 900."""

LL_GBPS = {7: 39.0, 8: 87.7, 9: 141.0, 10: 282.0}
"""The most that LL is trusted with, by major compute capability."""

LL128_SHARE = 0.92
LL128_GBPS = 16 * 36.7
"""The most that LL128 is trusted with: Hopper's for each channel, 16 of which serve a Blackwell, where this binds."""

NVLS_SHARE = {9: 0.85 * 7 / 8, 10: 0.74 * 7 / 8}
"""Of both directions of the links; one of eight channels is not counted."""

DIRECT_LL_BYTES = 16384
"""Most bytes for one peer that LL sends (src/enqueue.cc)."""


def ranges(usable: Mapping[str, Bools], calls: Calls, links: Links) -> dict[str, tuple[Floats, Floats]]:
    """From how many bytes on, and up to how many, each algorithm and protocol is taken.

    Args:
        usable: By name such as 'ring/LL' or 'direct/Simple': where it can run.
        calls: On one node; their bytes don't matter.
        links: Of GPUs of NVIDIA.

    Returns:
        By name; what is never taken begins where it ends, or later.
    """
    zero, ever = np.zeros_like(calls.ranks), np.full_like(calls.ranks, np.inf)
    if "direct/LL" in usable:
        peers = 1.0 if calls.collective == "send_recv" else calls.ranks
        most = DIRECT_LL_BYTES * peers + zero
        return {"direct/LL": (zero, most), "direct/Simple": (np.nextafter(most, np.inf), ever)}
    guesses = {name: _guess(name, where, calls, links) for name, where in usable.items()}
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


def _guess(name: str, usable: Bools, calls: Calls, links: Links) -> tuple[Floats, Floats]:
    """Latency and time per byte that the tuner reckons with; what can't run begins too late."""
    steps = np.maximum(calls.rounds * (calls.ranks - 1), 1)
    hop_us = np.where(links.pcie, PCIE_HOP_US[name], HOP_US[name])
    rate = _gbps(name, links) * calls.ranks / steps
    return np.where(usable, BASE_US[name] + hop_us * steps, np.inf), np.where(usable, 1 / (rate * 1e3), 0.0)


def _gbps(name: str, links: Links) -> Floats:
    rings = FOUND * links.gbps
    if name == "ring/LL":
        return np.minimum(rings / 2, LL_GBPS[min(max(links.capability, 7), 10)])
    if name == "ring/LL128":
        return np.minimum(LL128_SHARE * rings, LL128_GBPS)
    if name == "nvls/Simple":
        return 2 * NVLS_SHARE[min(links.capability, 10)] * rings
    return rings
