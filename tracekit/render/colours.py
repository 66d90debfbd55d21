"""Colours of kernel families, the same in every format.

They are Okabe and Ito's palette, which people with colour blindness can distinguish
(https://jfly.uni-koeln.de/color/), plus more colours for rarer families and for waiting.
"""

FAMILY_COLOURS = {
    "gemm": "#0072b2",
    "attention": "#56b4e9",
    "linear_attention": "#8da0cb",
    "conv": "#009e73",
    "moe": "#00bfae",
    "collective": "#d55e00",
    "waiting": "#f4a582",
    "elementwise": "#f0e442",
    "norm": "#e69f00",
    "softmax": "#cc79a7",
    "optimizer": "#7030c0",
    "copy": "#6e3b1f",
    "reduction": "#7a9a01",
    "embedding": "#144d3a",
    "memcpy": "#a1866f",
    "memset": "#d7c4b0",
}
OTHER_COLOUR = "#999999"
IDLE_COLOUR = "#444444"
GREY = "#888888"
"""Colour of auxiliary lines."""


def get_family_colour(family: str) -> str:
    """Return the colour of a kernel family, or of ``idle``."""
    return IDLE_COLOUR if family == "idle" else FAMILY_COLOURS.get(family, OTHER_COLOUR)
