"""Tells what predictions from one GPU to another make of time that stand-ins for published jobs don't have.

python -m tests.validation.studies.missing FROM TO

Of each job of gpus.py with a throughput on both GPUs: what share of its step on FROM the kernels' times by
their shapes leave open, how much quicker TO ran it, and how much too quick it is predicted there: carried, where a part
of the kernels' slowness is taken to be FROM's own; with kernels that fall as short on TO; and with what is open on FROM
taking as long in a step on TO. Language models' sequences over 4,096 tokens ran by other kernels and are left out.
"""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from predictors import load_gpu
from tests.validation.published_jobs.jobs import Published, published
from tests.validation.studies.gpus import carry, from_shapes
from tests.validation.tables import print_table
from tests.validation.words import given

LONGEST = 4096


class Row(NamedTuple):
    """Of a job; how much too quick it is predicted in percent, in three ways."""

    source: str
    job: str
    open_pct: float
    quicker: float
    carried_pct: float
    as_slow_pct: float
    as_long_pct: float

    def __str__(self) -> str:
        """A table's line."""
        errors = " | ".join(f"{error:+.0f} %" for error in self[4:])
        return f"| {self.source} | {self.job} | {self.open_pct:.0f} % | {self.quicker:.2f} | {errors} |"


def main() -> None:
    """Prints a line for each job, and the medians of each source."""
    start, goal = (load_gpu(name).slug for name in given(__doc__, 2, 2))
    found = list(rows(start, goal))
    heading = "| source | job | open | quicker | carried | as slow there | as long there |"
    print_table(heading, map(str, [*found, *medians(found)]))


def rows(start: str, goal: str) -> Iterator[Row]:
    """Of all jobs that both ran."""
    mine = [row for row in published() if _length(row) <= LONGEST and row.gpu in (start, goal)]
    there = {(row.source, row.job): row for row in mine if row.gpu == goal}
    for one in mine:
        if one.gpu == start and (other := there.get((one.source, one.job))):
            yield row(one, other)


def row(one: Published, other: Published) -> Row:
    """A job's."""
    alone = {of: from_shapes(of) for of in (one, other)}
    step, known, step_there, known_there = (
        of.batch / rate for of in (one, other) for rate in (of.samples_per_s, alone[of].predicted)
    )
    return Row(
        one.source,
        f"{one.job.model}, {one.job.step}, {one.job.precision}",
        100 * (1 - known / step),
        other.samples_per_s / one.samples_per_s,
        carry(one, other, alone).error_pct,
        100 * (step_there / (known_there * step / known) - 1),
        100 * (step_there / (known_there + step - known) - 1),
    )


def medians(found: Sequence[Row]) -> Iterator[Row]:
    """One row for each source."""
    for source in dict.fromkeys(row.source for row in found):
        columns = list(zip(*(row[2:] for row in found if row.source == source), strict=True))
        yield Row(source, f"median of {len(columns[0])}", *map(median, columns))


def _length(row: Published) -> int:
    """Tokens of a sequence."""
    return int(row.job.model.partition("/")[2] or 0)


if __name__ == "__main__":
    main()
