"""Edit: scale kernel times."""

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.edited import EditedProgram, scale_kernel_times
from tracekit.whatif.select import KernelSelection

MAX_FACTOR = 1e6


def scale(program: Program, select: KernelSelection, factor: float) -> EditedProgram:
    """Multiply kernel times by ``factor``: 0.5 for twice as fast.

    Raises:
        WhatIfError: No kernel is selected, or the factor is negative or above ``MAX_FACTOR``.
    """
    if not 0 <= factor <= MAX_FACTOR:
        raise WhatIfError(messages.FACTOR_OUT_OF_RANGE(factor=factor, largest=MAX_FACTOR))
    rows = select.find_rows(program)
    count = int(rows.sum())
    change = messages.KERNELS_SCALED(kernels=count, factor=factor)
    return EditedProgram(scale_kernel_times(program, np.where(rows, factor, 1.0)), count, change)
