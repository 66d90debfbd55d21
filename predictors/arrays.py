"""What the arrays of a table's rows hold."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Single = npt.NDArray[np.float32]
Frameworks = npt.NDArray[np.object_] | None
