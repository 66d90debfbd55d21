"""Memory of training jobs from their commands, against published peaks.

Published is the most memory that PyTorch's allocator reserved, which holds free blocks beside tensors: torchtitan logs
it, and of Hugging Face's guide it is what the driver tells less the context. Predicted is what tensors take at once.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from typer.testing import CliRunner

from tests.validation.studies.whole_jobs.training_jobs import FILE, TITAN_GPU, write_models
from tests.validation.study import format_table, read_published
from tracekit.cli.app import app

INPUTS = ()
GIB = 2**30
BERT = {
    "architectures": ["BertForSequenceClassification"],
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
}
"""bert-large-uncased, with the head that Hugging Face's guide trains."""
SOURCES = {
    "llama3_h100_202412": "torchtitan, 2024-12",
    "llama3-8b_h200_202506": "torchtitan, 2025-06",
    "perf_train_gpu_one": "Hugging Face, 2022",
}
"""Part of a source -> who measured, and when."""
GPUS = re.compile(r"--(?:dp|tp|cp) (\d+)")
ENDS = (("min_bytes", "max_bytes"), ("peak_bytes", "peak_bytes"))
"""Names of the least and the most that tensors take, in the note on memory."""

Row = tuple[str, str, float, tuple[float, float]]
"""Source, command, what was reserved, and the least and the most that tensors take, in GiB."""


def run() -> str:
    """Return the commands with published and predicted memory."""
    rows = []
    with TemporaryDirectory() as folder:
        write_models(Path(folder))
        Path(folder, "bert-large.json").write_text(json.dumps(BERT))
        for row in read_published("training_memory").iter_rows(named=True):
            command = complete(row["command"])
            source = next(name for part, name in SOURCES.items() if part in row["source"])
            rows.append((source, command, row["gib"], measure(command, Path(folder))))
    headings = ("source", "command, behind `tracekit predict`", "reserved, GiB", "tensors, GiB", "error")
    return "\n".join(
        (
            "# Memory of training jobs\n",
            format_table(("source", "jobs", "median error", "median absolute error"), summarize(rows)),
            f"A file's name stands for the model's config.json; {TITAN_GPU}.toml is 8 H100 of 96 GB. *reserved* is "
            "published, *error* that of the most that tensors take.\n",
            format_table(headings, format_rows(rows)),
            "Sources: pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md and "
            "llama3-8b_h200_202506_trainy-whitefiber.md; huggingface/transformers at 0016acf, "
            "docs/source/en/perf_train_gpu_one.mdx (what the driver tells, less 1343 MiB of the context).",
        )
    )


def summarize(rows: list[Row]) -> Iterator[tuple[str, ...]]:
    """Yield the errors of each source."""
    for source in SOURCES.values():
        errors = [100 * (high / gib - 1) for of, _, gib, (_, high) in rows if of == source]
        yield source, str(len(errors)), f"{median(errors):+.0f} %", f"{median(map(abs, errors)):.0f} %"


def format_rows(rows: list[Row]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row."""
    for source, command, gib, (low, high) in rows:
        found = f"{low:.1f}" if low == high else f"{low:.1f}–{high:.1f}"
        yield source, f"`{command}`", f"{gib:.1f}", found, f"{100 * (high / gib - 1):+.0f} %"


def complete(command: str) -> str:
    """Complete a published command: by torchtitan's cluster, stack and attention where it doesn't say them."""
    model, _, rest = command.partition(" ")
    if "--gpu" in rest or "--cluster" in rest:
        return f"{model}.json --train {rest}"
    gpus = 1
    for ranks in GPUS.findall(command):
        gpus *= int(ranks)
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
