"""Memory of training jobs from their commands, against published peaks.

torchtitan publishes the most memory that its allocator reserved, which holds free blocks beside tensors; predicted is
what tensors take at once.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from typer.testing import CliRunner

from tests.validation.studies.whole_jobs.training_jobs import FILE, TITAN_GPU, write_models
from tests.validation.study import format_table, read_published
from tracekit.cli.app import app

INPUTS = ()
GIB = 2**30
GPUS = re.compile(r"--(?:dp|tp|cp) (\d+)")
ENDS = (("min_bytes", "max_bytes"), ("peak_bytes", "peak_bytes"))
"""Names of the least and the most that tensors take, in the note on memory."""


def run() -> str:
    """Return the commands with published and predicted memory."""
    rows = []
    with TemporaryDirectory() as folder:
        write_models(Path(folder))
        for row in read_published("training_memory").iter_rows(named=True):
            command = complete(row["command"])
            rows.append((command, row["gib"], measure(command, Path(folder))))
    headings = ("command, behind `tracekit predict`", "published, GiB", "tensors, GiB", "error")
    errors = [100 * (max(found) / gib - 1) for _, gib, found in rows]
    return "\n".join(
        (
            "# Memory of training jobs\n",
            f"A file's name stands for the model's config.json; {TITAN_GPU}.toml is 8 H100 of 96 GB. *published* is "
            "what the allocator reserved, *error* that of the most that tensors take.\n",
            format_table(headings, format_rows(rows)),
            f"Mean error {mean(errors):+.0f} %, absolute {mean(map(abs, errors)):.0f} %.\n",
            "Source: pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md.",
        )
    )


def format_rows(rows: list[tuple[str, float, tuple[float, float]]]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row."""
    for command, gib, (low, high) in rows:
        yield f"`{command}`", f"{gib:.1f}", f"{low:.1f}–{high:.1f}", f"{100 * (high / gib - 1):+.0f} %"


def complete(command: str) -> str:
    """Complete a published command by its cluster, its stack and its attention."""
    gpus = 1
    for ranks in GPUS.findall(command):
        gpus *= int(ranks)
    model, _, rest = command.partition(" ")
    nodes = f"{gpus // 8}x" if gpus > 8 else ""
    stack = f"--stack torchtitan --attention flash --cluster {nodes}{TITAN_GPU}.toml"
    return f"{model}.json --train {rest} {stack}"


def measure(command: str, folder: Path) -> tuple[float, float]:
    """Return the least and the most GiB that a rank's tensors take."""
    words = [FILE.sub(rf"\g<nodes>{folder}/\g<name>", word) for word in command.split()]
    done = CliRunner().invoke(app, ["predict", *words, "--json", "-q"])
    (target,) = json.loads(done.stdout)["targets"]
    (reason,) = (note["values"]["reason"] for note in target["notes"] if note["code"].startswith("memory-"))
    low, high = next(ends for ends in ENDS if ends[0] in reason["values"])
    return reason["values"][low] / GIB, reason["values"][high] / GIB
