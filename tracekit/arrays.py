"""Types of the flat arrays, and a function on them."""

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def compute_least_from(values: Ints) -> Ints:
    """Return the least value from each place on: ``[3, 1, 2]`` gives ``[1, 1, 2]``."""
    least: Ints = np.minimum.accumulate(values[::-1])[::-1]
    return least
