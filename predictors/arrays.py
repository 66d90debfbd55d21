"""Types of the arrays that hold table columns."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
Frameworks = npt.NDArray[np.object_] | None
Columns = Mapping[str, Floats]
"""Columns of a table by name."""
