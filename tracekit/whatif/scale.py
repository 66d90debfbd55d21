"""Edit: scale kernel times."""

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.messages import what_ifs as messages
from tracekit.run import MeasuredRun
from tracekit.whatif.edited import EditedRun, scale_kernel_times
from tracekit.whatif.select import KernelSelection

MAX_FACTOR = 1e6


def scale(run: MeasuredRun, select: KernelSelection, factor: float) -> EditedRun:
    """Multiply kernel times by ``factor``: 0.5 for twice as fast.

    Raises:
        WhatIfError: No kernel is selected, or the factor is negative or above ``MAX_FACTOR``.
    """
    if not 0 <= factor <= MAX_FACTOR:
        raise WhatIfError(messages.FACTOR_OUT_OF_RANGE(factor=factor, largest=MAX_FACTOR))
    rows = select.find_rows(run)
    count = int(rows.sum())
    change = messages.KERNELS_SCALED(kernels=count, factor=factor)
    return EditedRun(scale_kernel_times(run, np.where(rows, factor, 1.0)), count, change)
