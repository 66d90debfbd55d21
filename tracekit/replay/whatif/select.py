"""Which kernels an edit is for: ``family=gemm, op=aten::mm``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import polars as pl
from polars.exceptions import ComputeError

from tracekit import schema
from tracekit.arrays import Bools
from tracekit.errors import WhatIfError
from tracekit.graph import spans
from tracekit.graph.nodes import NONE
from tracekit.replay.run import Run

NAME, WITHIN = "name", "within"
USUAL = ("family", "op", NAME, "stream", WITHIN)
KEYS = (*(c.name for c in schema.KERNELS.columns if c.dtype in (pl.String, pl.Int64, pl.Boolean)), WITHIN)


@dataclass(frozen=True, slots=True)
class Select:
    """Kernels that agree with every one of some patterns; all kernels without any.

    Attributes:
        patterns: Column of the kernel table to a regular expression that its whole value has to match. Of ``name``
            any part may match. ``within`` is no column: it stands for kernels launched within an op or annotation
            whose name the expression finds.
    """

    patterns: Mapping[str, str]

    def __post_init__(self) -> None:
        """Refuse what can't be meant."""
        for key, pattern in self.patterns.items():
            if key not in KEYS:
                raise WhatIfError(
                    f"kernels can't be selected by {key!r}.", f"Use {', '.join(USUAL)} or a column of the kernel table."
                )
            check_pattern(pattern)

    def __str__(self) -> str:
        told = ", ".join(f"{key}={pattern}" for key, pattern in self.patterns.items())
        return f"kernels with {told}" if told else "kernels"

    def rows(self, run: Run) -> Bools:
        """Which rows of the kernel table are meant.

        Raises:
            WhatIfError: None of them.
        """
        found = reduce(np.logical_and, (_matches(run, *item) for item in self.patterns.items()), _all(run))
        if not found.any():
            raise WhatIfError(f"there are no {self}.", self._hint(run))
        return found

    def _hint(self, run: Run) -> str:
        """The values that the trace does have, where one key alone finds nothing."""
        for key, pattern in self.patterns.items():
            if key in (NAME, WITHIN) or _matches(run, key, pattern).any():
                continue
            values = (
                run.kernels[key].drop_nulls().value_counts(sort=True, name="n").sort("n", key, descending=[True, False])
            )
            most = values[key].head(8).cast(pl.String).to_list()
            return f"The trace has {key}={'|'.join(most)}{', ...' if values.height > 8 else ''}." if most else ""
        return ""


def check_pattern(pattern: str) -> None:
    """Refuse what is no regular expression.

    Raises:
        WhatIfError: It is none.
    """
    try:
        pl.Series([""]).str.contains(pattern)
    except ComputeError:
        raise WhatIfError(f"{pattern!r} is not a regular expression.") from None


def _all(run: Run) -> Bools:
    return np.ones(run.kernels.height, dtype=np.bool_)


def _matches(run: Run, key: str, pattern: str) -> Bools:
    if key == WITHIN:
        return _launched_within(run, pattern)
    values = run.kernels[key].cast(pl.String)
    matches = values.str.contains(pattern if key == NAME else f"^(?:{pattern})$")
    return matches.fill_null(False).to_numpy()


def _launched_within(run: Run, pattern: str) -> Bools:
    nodes = run.graph.nodes
    inside = spans.named(run.ranks, nodes, run.kernels, pattern)
    launched = nodes.launcher != NONE
    call = nodes.launcher[launched]
    found = np.zeros(nodes.launcher.size, dtype=np.bool_)
    found[launched] = inside.contain(nodes.lane[call], nodes.start_ns[call])
    return found
