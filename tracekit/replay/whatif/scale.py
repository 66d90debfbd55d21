"""Kernels that take a multiple of their time."""

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.replay.run import Run
from tracekit.replay.whatif.edited import Edited, with_factors
from tracekit.replay.whatif.select import Select
from tracekit.units import many

MOST = 1e6


def scale(run: Run, select: Select, factor: float) -> Edited:
    """Kernels take ``factor`` times as long: 0.5 for twice as fast.

    Raises:
        WhatIfError: No kernel is selected, or the factor is negative or beyond ``MOST``.
    """
    if not 0 <= factor <= MOST:
        raise WhatIfError(f"kernels can't take {factor:g} times as long.", f"Give a factor from 0 to {MOST:g}.")
    rows = select.rows(run)
    count = int(rows.sum())
    told = f"{many(count, 'kernel')} at {factor:g} of {'its' if count == 1 else 'their'} time"
    return Edited(with_factors(run, np.where(rows, factor, 1.0)), count, told)
