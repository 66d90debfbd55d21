"""What a report's sliders change in its request: the batch, the host's speed, the number of GPUs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, log2
from typing import Any

from tracekit.comm import load_cluster
from tracekit.prediction.targets import expand_group
from tracekit.web.jobs import WebJob

NODE = re.compile(r"[1-8]x([a-z0-9-]+)")
"""Name of a cluster that is one node of some GPUs."""
MAX_GPUS_OF_NODE = 8
"""GPUs that a target which is a GPU alone may have: those of the usual node."""


@dataclass(frozen=True, slots=True)
class Slider:
    """One slider.

    Attributes:
        name: Name of its option, and of its input.
        label: What it changes.
        least: Its least value.
        most: Its largest one.
        step: Distance between values.
        value: Where it stands.
        is_power: Whether its values are exponents of 2.
    """

    name: str
    label: str
    least: float
    most: float
    step: float
    value: float
    is_power: bool

    @property
    def shown(self) -> str:
        """Its value as people read it."""
        return f"{2**self.value if self.is_power else self.value:.3g}"

    def read(self, text: str) -> float:
        """Return where it was moved to, within its range; where it stood if a text says nothing."""
        try:
            value = float(text)
        except ValueError:
            return self.value
        return self.value if isnan(value) else min(max(value, self.least), self.most)


def list_sliders(job: WebJob) -> list[Slider]:
    """Return the sliders of a job's report, where they stand by its request; none without targets, or of a fleet."""
    request = job.request or {}
    if job.is_fleet or not (request.get("gpu") or request.get("cluster")):
        return []
    gpus = request.get("world_size") or _count_ranks(job)
    clusters = [name for name in request.get("cluster") or () if not NODE.fullmatch(name)]
    most = min((load_cluster(name).gpus for name in clusters), default=MAX_GPUS_OF_NODE)
    sliders = [
        Slider("batch", "Batch, times the trace's", -3, 5, 1, round(log2(request.get("batch") or 1)), True),
        Slider("host_speed", "Host speed, times the trace's", 0.5, 3, 0.1, request.get("host_speed") or 1, False),
        Slider("world_size", "GPUs in use", 0, int(log2(max(most, gpus))), 1, round(log2(gpus)), True),
    ]
    return [slider for slider in sliders if isinstance(slider.value, int | float) and slider.least < slider.most]


def adjust_request(job: WebJob, entered: Mapping[str, str]) -> dict[str, Any]:
    """Return a job's request with what its sliders changed.

    Args:
        job: The job.
        entered: Where the sliders stand, by name, as the form sends it.
    """
    request = dict(job.request or {})
    for slider in list_sliders(job):
        moved = slider.read(entered.get(slider.name, ""))
        if moved == slider.value:
            continue
        value = 2.0**moved if slider.is_power else moved
        if slider.name == "world_size":
            request |= _move_to_gpus(request, int(value), _count_ranks(job))
        else:
            request[slider.name] = None if value == 1 else value
    return request


def _count_ranks(job: WebJob) -> int:
    """Return the number of ranks that were traced."""
    ranks: int | None = (job.found or {}).get("diagnosis", {}).get("world_size")
    return ranks or 1


def _move_to_gpus(request: Mapping[str, Any], gpus: int, ranks: int) -> dict[str, Any]:
    """Return the targets with another number of GPUs each: the links between those of a GPU alone are a node's."""
    nodes = [found[1] for name in request["cluster"] if (found := NODE.fullmatch(name))]
    alone = [*(gpu for name in request["gpu"] for gpu in expand_group(name)), *nodes]
    others = [name for name in request["cluster"] if not NODE.fullmatch(name)]
    targets = {"gpu": alone, "cluster": others}
    if gpus > 1:
        targets = {"gpu": [], "cluster": [*others, *(f"{gpus}x{name}" for name in alone)]}
    return targets | {"world_size": None if gpus == ranks else gpus}
