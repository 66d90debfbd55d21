"""One colour per family of kernels, the same in every format.

They are Okabe and Ito's palette, which colour-blind people can tell apart (https://jfly.uni-koeln.de/color/), with
more for rarer families and for waiting.
"""

FAMILIES = {
    "gemm": "#0072b2",
    "attention": "#56b4e9",
    "conv": "#009e73",
    "moe": "#00bfae",
    "collective": "#d55e00",
    "waiting": "#f4a582",
    "elementwise": "#f0e442",
    "norm": "#e69f00",
    "softmax": "#cc79a7",
    "optimizer": "#7030c0",
    "copy": "#6e3b1f",
}
OTHER = "#999999"
IDLE = "#444444"
GREY = "#888888"
"""Of lines beside what is drawn."""


def colour(family: str) -> str:
    """The colour of a family, or of ``idle``."""
    return IDLE if family == "idle" else FAMILIES.get(family, OTHER)
