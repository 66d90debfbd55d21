"""Select the kernels of an edit: ``family=gemm, op=aten::mm``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import polars as pl
from polars.exceptions import ComputeError

from tracekit import schema
from tracekit.arrays import Bools
from tracekit.errors import WhatIfError
from tracekit.graph import recorded
from tracekit.graph.nodes import NONE
from tracekit.messages import Message
from tracekit.messages import what_ifs as messages
from tracekit.program import Program

MAX_SUGGESTED_VALUES = 8
NAME, WITHIN = "name", "within"
COMMON_KEYS = ("family", "op", NAME, "stream", WITHIN)
SELECTABLE_KEYS = (*(c.name for c in schema.KERNELS.columns if c.dtype in (pl.String, pl.Int64, pl.Boolean)), WITHIN)


@dataclass(frozen=True, slots=True)
class KernelSelection:
    """Selection of the kernels that match all patterns; all kernels if there are no patterns.

    Attributes:
        patterns: Column of the kernel table to a regular expression that must match its whole value. For ``name``,
            any part may match. ``within`` isn't a column: it selects kernels launched within an op or annotation in
            whose name the expression is found.
    """

    patterns: Mapping[str, str]

    def __post_init__(self) -> None:
        """Refuse unknown keys and invalid patterns."""
        for key, pattern in self.patterns.items():
            if key not in SELECTABLE_KEYS:
                raise WhatIfError(messages.SELECTION_KEY_UNKNOWN(key=key, known=COMMON_KEYS))
            check_pattern(pattern)

    def __str__(self) -> str:
        told = ", ".join(f"{key}={pattern}" for key, pattern in self.patterns.items())
        return f"kernels with {told}" if told else "kernels"

    def find_rows(self, program: Program) -> Bools:
        """Return a mask of the selected rows of the kernel table.

        Raises:
            WhatIfError: No row is selected.
        """
        found = reduce(
            np.logical_and, (_match_rows(program, *item) for item in self.patterns.items()), _select_all(program)
        )
        if not found.any():
            raise WhatIfError(self._describe_empty(program))
        return found

    def _describe_empty(self, program: Program) -> Message:
        """Return the error, with the values that the trace has if one key alone matches nothing."""
        for key, pattern in self.patterns.items():
            if key in (NAME, WITHIN) or _match_rows(program, key, pattern).any():
                continue
            values = (
                program.kernels[key]
                .drop_nulls()
                .value_counts(sort=True, name="n")
                .sort("n", key, descending=[True, False])
            )
            most = values[key].head(MAX_SUGGESTED_VALUES).cast(pl.String).to_list()
            if most:
                return messages.SELECTION_VALUE_UNKNOWN(selection=str(self), key=key, values=most)
            break
        return messages.SELECTION_EMPTY(selection=str(self))


def check_pattern(pattern: str) -> None:
    """Refuse an invalid regular expression.

    Raises:
        WhatIfError: The pattern isn't a regular expression.
    """
    try:
        pl.Series([""]).str.contains(pattern)
    except ComputeError:
        raise WhatIfError(messages.PATTERN_INVALID(pattern=pattern)) from None


def _select_all(program: Program) -> Bools:
    return np.ones(program.kernels.height, dtype=np.bool_)


def _match_rows(program: Program, key: str, pattern: str) -> Bools:
    if key == WITHIN:
        return _find_launched_within(program, pattern)
    values = program.kernels[key].cast(pl.String)
    matches = values.str.contains(pattern if key == NAME else f"^(?:{pattern})$")
    return matches.fill_null(False).to_numpy()


def _find_launched_within(program: Program, pattern: str) -> Bools:
    nodes = program.graph.nodes
    inside = recorded.find_spans_by_name(program.ranks, program.launch_threads, pattern)
    launched = nodes.launcher != NONE
    call = nodes.launcher[launched]
    found = np.zeros(nodes.launcher.size, dtype=np.bool_)
    found[launched] = inside.contain(nodes.lane[call], nodes.start_ns[call])
    return found
