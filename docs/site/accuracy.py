"""Generate the tables of accuracy in README.md and accuracy.md from the results of the studies.

A block stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. `python -m docs.site.accuracy` writes all of
them anew; the site isn't built, and a test fails, while one is out of date.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from docs.site.markdown import format_table, make_anchor

ROOT = Path(__file__).parents[2]
RESULTS = "tests/validation/results"
PAGES = ("README.md", "docs/explanation/accuracy.md")
BLOCK = re.compile(r"(?s)(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)")
NONE = "–"
HEADINGS = ("prediction", "checked against", "absolute error, median", "worst", "in the 90 % interval")

Line = Mapping[str, str]
"""A line of a result's table: heading -> cell."""
Cells = tuple[str, str, str]
"""The median error, the worst, and how many are inside."""


class StaleBlockError(Exception):
    """A block isn't what the results say; the message says how to write it anew."""


@dataclass(frozen=True)
class Quote:
    """A row of the tables of accuracy.

    Attributes:
        prediction: What is predicted.
        checked: What it is checked against; the text of the link.
        result: Table of a study, and after ``#`` its section.
        line: First cell of the line that is quoted, or the first two joined by a comma; empty for all lines.
        read: Returns the cells of the lines that are quoted.
        is_short: Whether README.md has the row, too.
    """

    prediction: str
    checked: str
    result: str
    line: str
    read: Callable[[Sequence[Line]], Cells]
    is_short: bool = False

    def format(self, page: Path) -> tuple[str, ...]:
        """Return the row's cells, with links from a page."""
        name, _, anchor = self.result.partition("#")
        path = os.path.relpath(ROOT / RESULTS / f"{name}.md", page.parent)
        link = f"[{self.checked}]({path}{'#' + anchor if anchor else ''})"
        return self.prediction, link, *self.read(find_lines(self.result, self.line))


def find_lines(result: str, line: str) -> list[Line]:
    """Return the lines of a result's table that begin with a text, or all lines of its first table.

    Args:
        result: Table of a study, and after ``#`` its section.
        line: First cell, or the first two joined by a comma; empty for all.

    Raises:
        ValueError: The section or the line isn't there.
    """
    name, _, anchor = result.partition("#")
    sections = re.split(r"(?m)^(?=#+ )", (ROOT / RESULTS / f"{name}.md").read_text(encoding="utf-8"))
    tables = [
        table
        for section in sections
        if not anchor or make_anchor(section.partition("\n")[0]) == anchor
        for table in read_tables(section)
    ]
    if not line:
        return tables[0] if tables else []
    found = [one for table in tables for one in table if line in list_keys(one)]
    if not found:
        raise ValueError(f"{result} has no line {line!r}: bring docs/site/accuracy.py in line with its study")
    return found[:1]


def list_keys(line: Line) -> tuple[str, str]:
    """Return a line's first cell, and its first two joined by a comma."""
    first, second, *_ = line.values()
    return first, f"{first}, {second}"


def read_tables(text: str) -> list[list[Line]]:
    """Read the Markdown tables of a text; a heading that comes again is numbered."""
    tables = []
    for block in re.findall(r"(?m)(?:^\|.*\n?)+", text):
        headings, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
        earlier = [headings[:at].count(heading) for at, heading in enumerate(headings)]
        names = [f"{name} {count + 1}" if count else name for name, count in zip(headings, earlier, strict=True)]
        tables.append([dict(zip(names, cells, strict=True)) for cells in lines])
    return tables


def read_summary(
    error: str, worst: str, inside: str = "in interval", count: str = "", width: str = ""
) -> Callable[[Sequence[Line]], Cells]:
    """Return a reader of one line that sums up predictions.

    Args:
        error: Heading of the median error.
        worst: Of the worst one; two headings, joined by a bar, of the lowest and the highest; empty if none tells.
        inside: Of how many are inside.
        count: Of how many there are, where the cell of those inside doesn't tell.
        width: Of the intervals' width.
    """

    def read(lines: Sequence[Line]) -> Cells:
        (line,) = lines
        held = (
            line[inside]
            + (f" of {line[count]}" if count else "")
            + (f", {line[width]} wide" if width and line[width] else "")
        )
        ends = " to ".join(line[end] + " (P90)" * (end == "P90") for end in worst.split("|") if end)
        unit = " %" * error.endswith(", %")
        return space_percent(line[error]) + unit, (space_percent(ends) or NONE) + unit, held or NONE

    return read


def read_quantiles(heading: str, inside: str = "") -> Callable[[Sequence[Line]], Cells]:
    """Return a reader of a cell of a median and a 90th percentile, and of the share inside."""

    def read(lines: Sequence[Line]) -> Cells:
        (line,) = lines
        error, worst = line[heading].removesuffix("%").split("/")
        held = f"{line[inside]} of {line['rows']}" if inside else NONE
        return f"{error.strip()} %", f"{worst.strip()} % (P90)", held

    return read


def read_each(error: str, inside: str) -> Callable[[Sequence[Line]], Cells]:
    """Return a reader of lines of one prediction each."""

    def read(lines: Sequence[Line]) -> Cells:
        errors = [float(line[error].rstrip("% ")) for line in lines]
        held = sum(line[inside] == "yes" for line in lines)
        return f"{median(map(abs, errors)):.0f} %", f"{max(errors, key=abs):+.0f} %", f"{held} of {len(lines)}"

    return read


def space_percent(text: str) -> str:
    """Return a text with a space before each sign of percent."""
    return re.sub(r"(?<=\d)%", " %", text)


PAIRS = "whole_jobs/trace_pairs"
RECORDED_PAIRS = f"{PAIRS}#recorded-samples"
read_pairs = read_summary("absolute error, median", "worst", width="high/low, median")
read_carried = read_summary("absolute, median", "worst", count="predictions")

read_models = read_summary("mean absolute error, %", "worst", count="models")
read_results = read_summary("absolute error, median", "lowest error|highest")
QUOTES = (
    Quote("a trace's step on another GPU, which the GPU bounds", "recorded pairs of H100 and H200, with unlike CPUs",
          RECORDED_PAIRS, "GPU-bound", read_pairs, is_short=True),
    Quote("the same that the CPU bounds, the target's CPU not told", "the same pairs",
          RECORDED_PAIRS, "CPU-bound", read_pairs, is_short=True),
    Quote("the same, its CPU told by `--host`", "the same pairs",
          RECORDED_PAIRS, "CPU-bound, with that host", read_pairs, is_short=True),
    Quote("the same, both kinds", "five bf16 inference jobs, H100 and MI300X", PAIRS, "all", read_pairs),
    Quote("their time on the GPU", "the same jobs", PAIRS, "GPU busy", read_pairs),
    Quote("a job carried to another GPU, of 12 kinds", "Lambda's published throughputs, without traces",
          "whole_jobs/throughputs#from-another-gpu-lambda", "all", read_carried, is_short=True),
    Quote("of them, to an H100 SXM", "Lambda's",
          "whole_jobs/throughputs#from-another-gpu-lambda", "lambda, NVIDIA H100 SXM5 80 GB", read_carried,
          is_short=True),
    Quote("a language model's training, to an H100 SXM", "MosaicML's",
          "whole_jobs/throughputs#from-another-gpu-mosaic", "mosaic, NVIDIA H100 SXM5 80 GB", read_carried),
    Quote("the same, with FSDP", "IBM's",
          "whole_jobs/throughputs#from-another-gpu-ibm", "ibm, NVIDIA H100 SXM5 80 GB", read_carried),
    Quote("a job from its shapes alone", "all published throughputs",
          "whole_jobs/throughputs#from-shapes", "all", read_carried),
    Quote("a program that never ran", "recorded steps on an H100 and an H200, from their code",
          "whole_jobs/captured_steps", "steps", read_results, is_short=True),
    Quote("a language model in fp32 from its config", "NeuSight's models on eight GPUs",
          "whole_jobs/captured_models", "all", read_models),
    Quote("a vision model that never ran", "models drawn at random from timm's tables",
          "whole_jobs/timm_random", "all", read_summary("absolute error, median", "P90", width="width, median"),
          is_short=True),
    Quote("a step of a serving engine, decode", "PipeWeave's steps on nine GPUs",
          "whole_jobs/served_steps", "all", read_quantiles("decode", "inside"), is_short=True),
    Quote("the same, prefill", "the same",
          "whole_jobs/served_steps", "all", read_quantiles("prefill", "inside 2"), is_short=True),
    Quote("time per output token under load (`tracekit serving`)", "aiconfigurator's loads on H100 and H200",
          "whole_jobs/served_loads", "all", read_quantiles("TPOT", "inside"), is_short=True),
    Quote("time to the first token", "the same loads",
          "whole_jobs/served_loads", "all", read_quantiles("TTFT", "inside 2"), is_short=True),
    Quote("a served mixture of experts, from a trace", "OLMoE in vLLM: other GPUs, two GPUs, batches of 4 to 128",
          "whole_jobs/served_jobs", "", read_each("error", "inside")),
    Quote("a recommender on one GPU", "NVIDIA's DLRM on V100 and A100",
          "whole_jobs/recommenders", "all", read_summary("absolute", "", "inside", count="rows"),
          is_short=True),
    Quote("a recommender's training on a cluster", "MLPerf's DLRM-DCNv2 on 8 to 128 GPUs",
          "whole_jobs/recommenders#mlperfs-dlrm-dcnv2-on-clusters", "", read_each("error", "inside"), is_short=True),
    Quote("GEMMs in bf16 of a GPU that nobody measured, 30 of its kernels told by `tracekit calibrate`",
          "each GPU left out, by engine and release",
          "kernels/calibrated#gemm-bf16", "mean, all", read_quantiles("calibrated")),
    Quote("the same of attention, prefill", "the same",
          "kernels/calibrated#attention-prefill-bf16-and-fp8", "mean, all", read_quantiles("calibrated")),
    Quote("energy of a step", "recorded steps on an H100 and an H200",
          "whole_jobs/step_energy", "energy", read_results, is_short=True),
)  # fmt: skip


def format_block(name: str, page: Path) -> str:
    """Return a block's table."""
    quotes = [one for one in QUOTES if one.is_short or name == "accuracy"]
    return "\n".join((*format_table(HEADINGS, (one.format(page) for one in quotes)), ""))


def fill_blocks(page: Path) -> str:
    """Return a page's text with its blocks as the results say."""
    text = page.read_text(encoding="utf-8")
    return BLOCK.sub(lambda match: match[1] + format_block(match[2], page) + match[3], text)


def write_blocks() -> None:
    """Write all blocks anew."""
    for page in PAGES:
        (ROOT / page).write_text(fill_blocks(ROOT / page), encoding="utf-8")


def check_blocks() -> None:
    """Check that all blocks are as the results say.

    Raises:
        StaleBlockError: One isn't.
    """
    for page in PAGES:
        if (ROOT / page).read_text(encoding="utf-8") != fill_blocks(ROOT / page):
            raise StaleBlockError(f"{page} quotes older results: run `python -m docs.site.accuracy`")


if __name__ == "__main__":
    write_blocks()
