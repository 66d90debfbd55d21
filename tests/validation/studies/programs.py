"""Holds predictions against the published times of KernelBench's programs on several GPUs.

python -m tests.validation.studies.programs CHECKOUT [LEVEL...] [--csv FILE]

CHECKOUT is one of ScalingIntelligence/KernelBench; LEVEL is level1, level2 or level3, all by default. As in
gpus.py, but of programs of one or a few kernels each: *from shapes*, and *carried* from each GPU to the
others whose times are for the same kernels. Programs whose launches alone would take half of the time are left out
(LAUNCH_US), and those that ``LEFT_OUT`` names. ``published_jobs.kernelbench`` has the sources.
"""

import csv
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import polars as pl

from predictors import Batch, load_gpu
from tests.validation.published_jobs.kernelbench import Timed, kernels, timed
from tests.validation.published_jobs.kernels import carried, in_all
from tests.validation.tables import print_table
from tests.validation.words import given

LAUNCH_US, FIRST_LAUNCH_US = 10.0, 20.0
"""What the host takes for a kernel, half of what small networks here show, and for the first one after a wait."""
LEVELS = ("level1", "level2", "level3")
LEFT_OUT = {
    r"level3/(29|30)_": "layers are as deep as data say",
    r"level3/3[3-9]_|level3/4[0-2]_": "recurrent: thousands of kernels of which cuDNN chooses the kind",
    r"level3/4[89]_": "needs einops",
}
"""Programs, and why they aren't told."""

KINDS = (
    ("level 2", r"^level2/"),
    ("level 3", r"^level3/"),
    ("transposed convolution", r"conv_transposed"),
    ("depthwise convolution", r"conv_depthwise"),
    ("convolution", r"/\d+_conv"),
    ("attention", r"Attention"),
    ("loss", r"Loss"),
    ("elementwise", r"scalar_mult|diagonal|MinGPT"),
    ("GEMM", r"[Mm]atri|Matmul"),
    ("softmax", r"Softmax"),
    ("batch norm", r"BatchNorm"),
    ("instance norm", r"InstanceNorm"),
    ("group norm", r"GroupNorm"),
    ("layer norm", r"LayerNorm"),
    ("other norm", r"Norm_"),
    ("pooling", r"Pooling"),
    ("reduction", r"_over_a_dimension"),
    ("scan", r"cumsum|cumprod"),
    ("elementwise", r""),
)
"""What a program's name says it does; the first that fits."""


@dataclass(frozen=True)
class Outcome:
    """A prediction beside what was published, in microseconds."""

    row: Timed
    source_gpu: str | None
    kernels: int
    predicted: float
    low: float
    high: float

    @property
    def error_pct(self) -> float:
        """Of the time."""
        return 100 * (self.predicted / self.row.us - 1)

    @property
    def inside(self) -> bool:
        """Whether the interval holds what was published."""
        return self.low <= self.row.us <= self.high

    @property
    def kind(self) -> str:
        """What the program does."""
        return next(kind for kind, pattern in KINDS if re.search(pattern, self.row.program))

    @property
    def waits_for_launches(self) -> bool:
        """Whether its time may be the CPU's."""
        return FIRST_LAUNCH_US + LAUNCH_US * self.kernels > 0.5 * self.row.us


def main() -> None:
    """Prints the tables."""
    words = [word for word in given(__doc__, 1) if not word.startswith("--")]
    file = words.pop() if "--csv" in sys.argv else None
    checkout, levels = Path(words[0]), words[1:] or LEVELS
    rows = [row for row in timed() if row.program.split("/")[0] in levels and not is_left_out(row.program)]
    tables = {row: kernels(checkout / "KernelBench" / f"{row.program}.py", row.tf32) for row in rows}
    alone = {row: outcome(row, None, table, Batch(table).on(row.gpu)) for row, table in tables.items()}
    judged = [one for one in alone.values() if not one.waits_for_launches]
    print_table(heading("from shapes"), summary(judged))
    others = [carry(one, other.row, tables[other.row]) for one, other in pairs(judged, tables)]
    print_table(heading("carried"), summary(others))
    if file is not None:
        write([*alone.values(), *others], Path(file))


def is_left_out(program: str) -> bool:
    """Whether ``LEFT_OUT`` has it."""
    return any(re.match(pattern, program) for pattern in LEFT_OUT)


def pairs(outcomes: Sequence[Outcome], tables: Mapping[Timed, pl.DataFrame]) -> Iterator[tuple[Outcome, Outcome]]:
    """Each program on one GPU and on another, where both ran the same kernels."""
    same = defaultdict(list)
    for one in outcomes:
        same[one.row.program, tuple(tables[one.row].select("family", "tensor_core").rows())].append(one)
    for some in same.values():
        yield from ((one, other) for one in some for other in some if one.row.gpu != other.row.gpu)


def carry(one: Outcome, other: Timed, table: pl.DataFrame) -> Outcome:
    """From one GPU to another: with kernels that fall as short of the model there as here."""
    times = carried(table, one.row.gpu, other.gpu, slower=one.row.us / one.predicted)
    return outcome(other, one.row.gpu, table, times)


def outcome(row: Timed, source_gpu: str | None, table: pl.DataFrame, times: pl.DataFrame) -> Outcome:
    """What the kernels' times give."""
    return Outcome(row, source_gpu, table.height, *in_all(table, times))


def heading(what: str) -> str:
    """Of a table."""
    return f"| {what}: kind or GPU | predictions | error, median | of it absolute | worst | in interval |"


def summary(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """A line for each kind of program, for each GPU, and one for all."""
    groups: dict[str, list[Outcome]] = {kind: [] for kind in dict.fromkeys(kind for kind, _ in KINDS)}
    for one in sorted(outcomes, key=lambda one: one.row.gpu):
        for group in (one.kind, f"{load_gpu(one.row.gpu).name}, {one.row.source}", "all"):
            groups.setdefault(group, []).append(one)
    for group, some in sorted(groups.items(), key=lambda group: group[0] == "all"):
        if some:
            errors = [one.error_pct for one in some]
            inside = sum(one.inside for one in some)
            yield (
                f"| {group} | {len(some)} | {median(errors):+.0f} % | {median(map(abs, errors)):.0f} % "
                f"| {max(errors, key=abs):+.0f} % | {100 * inside / len(some):.0f} % |"
            )


def write(outcomes: Iterable[Outcome], file: Path) -> None:
    """Every prediction; without a source GPU those from shapes."""
    with file.open("w") as lines:
        table = csv.writer(lines, lineterminator="\n")
        names = ("program", "kind", "source", "gpu", "from_gpu", "measured_us", "predicted_us", "low_us", "high_us")
        table.writerow((*names, "n_kernels"))
        for one in outcomes:
            told = (one.row.program, one.kind, one.row.source, one.row.gpu, one.source_gpu or "")
            times = (round(us, 1) for us in (one.row.us, one.predicted, one.low, one.high))
            table.writerow((*told, *times, one.kernels))


if __name__ == "__main__":
    main()
