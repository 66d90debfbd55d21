"""Edit: scale kernel times."""

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.format import format_quantity
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
        raise WhatIfError(f"kernels can't take {factor:g} times as long.", f"Give a factor from 0 to {MAX_FACTOR:g}.")
    rows = select.find_rows(run)
    count = int(rows.sum())
    told = f"{format_quantity(count, 'kernel')} at {factor:g} of {'its' if count == 1 else 'their'} time"
    return EditedRun(scale_kernel_times(run, np.where(rows, factor, 1.0)), count, told)
