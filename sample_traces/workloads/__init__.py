"""Steps of the kinds of models that people profile, in plain PyTorch: name -> what makes the step.

Each maker takes the device and whether a small version will do, as for a check on a CPU.
"""

from collections.abc import Callable

from sample_traces.workloads import diffusion, experts, language, rebuilt, recommender, vision
from sample_traces.workloads.step import Step

Maker = Callable[[str, bool], Step]

WORKLOADS: dict[str, Maker] = {
    **vision.WORKLOADS,
    **language.WORKLOADS,
    **recommender.WORKLOADS,
    **experts.WORKLOADS,
    **diffusion.WORKLOADS,
}

REBUILT: dict[str, Maker] = rebuilt.WORKLOADS
"""By the name of the public trace that each rebuilds."""
