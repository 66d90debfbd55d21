"""Latency law of exchanges of tokens between experts: DeepEP's kernels, and those of serving engines around them.

A rank sends each token to the ranks of its experts (dispatch) and gets the experts' sums back (combine). In normal mode
a token goes once to each rank that has one of its experts, in low-latency mode once to each of its experts. Other than
NCCL's, an exchange has few SMs: it takes as long on links of twice the rate, and its beginning takes 15 to 270 us, as
ranks first tell each other how many tokens will come.
"""

import numpy as np
import polars as pl

from tracekit.arrays import Floats
from tracekit.comm.collective_calls import CollectiveCalls
from tracekit.comm.constants import ExchangeConstants

EXCHANGED = "all_to_all"
"""The collective that an exchange is."""


def predict_exchange_times(
    names: pl.Series, calls: CollectiveCalls, gpu: str, constants: ExchangeConstants
) -> tuple[Floats, Floats]:
    """Return the time in us of each exchange and the factor of its interval, NaN of collectives that are none.

    Nothing was measured between nodes.

    Args:
        names: Exchange of each call, a key of ``constants.costs``; null of NCCL's.
        calls: The collectives.
        gpu: Slug of the GPU.
        constants: Constants of exchanges.
    """
    base_us, gbps, width = np.full((3, calls.ranks.size), np.nan)
    scales = constants.find_machine_scales(gpu)
    for name in names.drop_nulls().unique():
        library, costs = str(name).partition("_")[0], constants.costs[str(name)]
        here = (names == name).fill_null(value=False).to_numpy()
        base_us[here] = costs.base_us * (scales.latency.get(library, 1.0) if scales else 1.0)
        gbps[here] = costs.gbps * (scales.bandwidth.get(library, 1.0) if scales else 1.0)
        width[here] = costs.known if scales and library in scales.latency else costs.unseen
    sent_bytes = calls.size_bytes * (1 - 1 / np.maximum(calls.ranks, 1))
    time_us = np.where((calls.nodes <= 1) & (calls.ranks > 1), base_us + sent_bytes / (gbps * 1e3), np.nan)
    return time_us, width
