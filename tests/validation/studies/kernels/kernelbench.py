"""Published times of KernelBench's programs, from shapes and from the times on another GPU.

As in `whole_jobs/throughputs`, but of programs of one or a few kernels each; *from another GPU* where both ran the same
kernels. Programs whose launches alone would take half of the time are left out.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import polars as pl

from predictors import Batch, load_gpu
from tests.validation.published_jobs.kernelbench import TimedProgram, read_timed_programs, tabulate_program_kernels
from tests.validation.published_jobs.kernels import predict_carried, sum_kernel_times
from tests.validation.study import KERNELBENCH, find_input, format_errors, format_table, list_sources

INPUTS = (KERNELBENCH,)
LAUNCH_US, FIRST_LAUNCH_US = 10.0, 20.0
"""Host time of a kernel, half of what small networks here show, and of the first one after a wait."""
LEFT_OUT = {
    r"level3/(29|30)_": "layers are as deep as data say",
    r"level3/3[3-9]_|level3/4[0-2]_": "recurrent: thousands of kernels of which cuDNN chooses the kind",
    r"level3/4[89]_": "needs einops",
}
"""Pattern of programs' names -> why they aren't predicted."""
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
"""Kind of program, and the pattern of its names; the first that fits."""


@dataclass(frozen=True)
class Outcome:
    """A prediction beside a published time, in microseconds."""

    row: TimedProgram
    kernels: int
    predicted: float
    low: float
    high: float

    @property
    def error_pct(self) -> float:
        """Return the error of the time."""
        return 100 * (self.predicted / self.row.us - 1)

    @property
    def is_inside(self) -> bool:
        """Return whether the interval holds the published time."""
        return self.low <= self.row.us <= self.high

    @property
    def kind(self) -> str:
        """Return the kind of program."""
        return next(kind for kind, pattern in KINDS if re.search(pattern, self.row.program))

    @property
    def may_wait_for_launches(self) -> bool:
        """Return whether the published time may be the host's."""
        return FIRST_LAUNCH_US + LAUNCH_US * self.kernels > 0.5 * self.row.us


def run() -> str:
    """Return the errors by kind of program and by GPU."""
    programs = find_input(KERNELBENCH) / "KernelBench"
    tables = dict(read_programs(programs))
    alone = [sum_outcome(row, kernels, Batch(kernels).on(row.gpu)) for row, kernels in tables.items()]
    judged = [one for one in alone if not one.may_wait_for_launches]
    others = [predict_from_other_gpu(*pair, tables) for pair in list_pairs(judged, tables)]
    return "\n".join(
        (
            "# KernelBench's programs\n",
            "## From shapes\n",
            tabulate(judged),
            "## From another GPU\n",
            tabulate(others),
            list_sources("kernelbench"),
        )
    )


def read_programs(folder: Path) -> Iterator[tuple[TimedProgram, pl.DataFrame]]:
    """Yield each timed program with its kernels."""
    for row in read_timed_programs():
        if not any(re.match(pattern, row.program) for pattern in LEFT_OUT):
            yield row, tabulate_program_kernels(folder / f"{row.program}.py", row.tf32)


def list_pairs(
    outcomes: Sequence[Outcome], tables: Mapping[TimedProgram, pl.DataFrame]
) -> Iterator[tuple[Outcome, Outcome]]:
    """Yield each program on one GPU and on another, where both ran the same kernels."""
    same = defaultdict(list)
    for one in outcomes:
        same[one.row.program, tuple(tables[one.row].select("family", "tensor_core").rows())].append(one)
    for some in same.values():
        yield from ((one, other) for one, other in permutations(some, 2) if one.row.gpu != other.row.gpu)


def predict_from_other_gpu(source: Outcome, target: Outcome, tables: Mapping[TimedProgram, pl.DataFrame]) -> Outcome:
    """Predict a program with kernels as slow against their shapes as on the other GPU."""
    kernels = tables[target.row]
    slowness = source.row.us / source.predicted
    return sum_outcome(target.row, kernels, predict_carried(kernels, source.row.gpu, target.row.gpu, slowness))


def sum_outcome(row: TimedProgram, kernels: pl.DataFrame, times: pl.DataFrame) -> Outcome:
    """Return the time that the kernels' times give."""
    return Outcome(row, kernels.height, *sum_kernel_times(kernels, times))


def tabulate(outcomes: Iterable[Outcome]) -> str:
    """Return the table of some predictions."""
    headings = ("kind or GPU", "predictions", "error, median", "absolute, median", "worst", "in interval")
    return format_table(headings, summarize(outcomes))


def summarize(outcomes: Iterable[Outcome]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of program, for each GPU, and one of all."""
    groups: dict[str, list[Outcome]] = {kind: [] for kind, _ in KINDS}
    for one in sorted(outcomes, key=lambda one: one.row.gpu):
        for group in (one.kind, f"{load_gpu(one.row.gpu).name}, {one.row.source}", "all"):
            groups.setdefault(group, []).append(one)
    for group, some in sorted(groups.items(), key=lambda group: group[0] == "all"):
        if some:
            inside_pct = 100 * sum(one.is_inside for one in some) / len(some)
            yield group, str(len(some)), *format_errors([one.error_pct for one in some]), f"{inside_pct:.0f} %"
