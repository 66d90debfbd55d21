"""Training of language models on clusters from their configs alone, against published throughputs.

Each row is a command: a model's config, precision, batch, micro-batches, layout and stack, as NVIDIA's Megatron-Bridge
and PyTorch's torchtitan publish them. Releases that repeat a job are rows of their own, and one line of the table.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from math import prod
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import monotonic

import polars as pl
from typer.testing import CliRunner

from predictors.gpu_names import GPU_FILES
from tests.validation.study import TRAINING_JOBS, find_input, format_table
from tracekit.capturing.torchtitan import FLAVOURS
from tracekit.cli.app import app

INPUTS = (TRAINING_JOBS,)
TITAN, BRIDGE = "torchtitan", "megatron-bridge"
STACKS = {TITAN: "torchtitan", BRIDGE: "megatron"}
MODELS = {
    "llama3-8b": FLAVOURS["llama3"]["8B"](),
    "llama3-70b": FLAVOURS["llama3"]["70B"](),
    "llama3.1-405b": FLAVOURS["llama3"]["405B"](),
    "qwen3-30b-a3b": FLAVOURS["qwen3"]["30B-A3B"](),
    "qwen3-235b-a22b": FLAVOURS["qwen3"]["235B-A22B"](),
    "gpt-oss-120b": FLAVOURS["gpt_oss"]["120b"](),
}
NAMES = (
    (r"LLAMA3_8B|Llama3(\.1)?-8B|^8B", "llama3-8b"),
    (r"LLAMA3_70B|Llama3-70B|^\.\.", "llama3-70b"),
    (r"LLAMA3\.1_405B", "llama3.1-405b"),
    (r"Qwen3_30B", "qwen3-30b-a3b"),
    (r"Qwen3_235B", "qwen3-235b-a22b"),
    (r"GPT OSS 120B", "gpt-oss-120b"),
)
"""Pattern of a job's name -> its model."""
PRECISIONS = {"FP8": "fp8", "FP8-CS": "fp8", "FP8-MX": "mxfp8", "MXFP8": "mxfp8", "NVFP4": "nvfp4", "BF16": "bf16"}
NODES = {"DGX-H100": (8, "h100-sxm"), "DGX-B200": (8, "b200"), "DGX-GB200": (64, "gb200")}
"""System -> GPUs of a node (NVL72 racks, of which jobs use 64), and the GPU."""
UNSAID = re.compile(r"LoRA|async|tokendrop")
"""Jobs that no command says: adapters, exchanges in pieces of a product, experts that drop tokens."""
TITAN_GPU, TITAN_LIMIT = "h100-96gb", "500W"
"""Of torchtitan's own rows. PyTorch of all its rows (2.6 to 2.8) puts FlashAttention 2 before cuDNN's attention."""
MISPRINTS = {
    (f"{BRIDGE} 25.11", "DGX-B200", "gpt-oss-120b"): {"ep": 64},
    (f"{BRIDGE} 25.11", "DGX-H100", "gpt-oss-120b"): {"mbs": 1},
    (f"{BRIDGE} 25.11", "DGX-H100", "qwen3-30b-a3b"): {"mbs": 1},
}
"""Sizes of rows that contradict the recipes of their release (Megatron-Bridge v0.2.0, scripts/performance/configs/
gpt_oss/workload_base_configs.py and qwen3/), whose sizes these are: 25.11 gives GPT-OSS on 4 stages of H100 2 passes of
4 sequences, which are 8, and with ``ep`` 8 on B200 the throughput that 26.02 has with 64."""
MOST_SECONDS = float(os.environ.get("TRACEKIT_STUDY_SECONDS", 1500))
"""Time after which no further command is begun: each takes 5 to 20 CPU seconds."""
OUT_OF_TIME = "not begun within the study's time"
FILE = re.compile(r"^(?P<nodes>(?:\d+x(?=[a-z]))?)(?P<name>[^/]+\.(?:json|toml))$")
"""A word of a command that is a file: a model's config, or nodes of a cluster's."""


@dataclass(frozen=True)
class Job:
    """A published throughput.

    Attributes:
        source: Who published it, with the release.
        command: What asks for it, behind ``tracekit predict``.
        tokens: Of a step, on all GPUs.
        gpus: Number of GPUs.
        rate: Tokens/s a GPU.
    """

    source: str
    command: str
    tokens: int
    gpus: int
    rate: float


@dataclass(frozen=True)
class Outcome:
    """What a command predicts, in tokens/s a GPU, beside the figures that were published for it."""

    jobs: tuple[Job, ...]
    likely: float
    low: float
    high: float

    @property
    def group(self) -> str:
        """Who published it."""
        return self.jobs[0].source.partition(" ")[0]

    @property
    def kind(self) -> tuple[str, ...]:
        """GPU, model, sequences' length and format."""
        words = self.jobs[0].command.split()
        given = {word: words[place + 1] for place, word in enumerate(words[:-1]) if word.startswith("--")}
        gpu = re.sub(r"^(\d+x)*|@.*|\.toml$", "", given["--cluster"])
        return gpu, words[0], given["--seq"], given["--precision"]

    @property
    def errors_pct(self) -> list[float]:
        """Error against each figure."""
        return [100 * (self.likely / job.rate - 1) for job in self.jobs]

    @property
    def inside(self) -> int:
        """How many figures the interval holds."""
        return sum(self.low <= job.rate <= self.high for job in self.jobs)

    @property
    def cells(self) -> tuple[str, ...]:
        """A row of the table."""
        rates = [job.rate for job in self.jobs]
        published = f"{min(rates):,.0f}" + (f"–{max(rates):,.0f}" if len(set(rates)) > 1 else "")
        return (
            f"`{self.jobs[0].command}`",
            str(len(rates)),
            published,
            f"{self.likely:,.0f} ({self.low:,.0f}–{self.high:,.0f})",
            f"{100 * (self.likely / median(rates) - 1):+.0f} %",
            f"{self.inside} of {len(rates)}",
        )


def run() -> str:
    """Return the commands with their errors, and what they come to by source."""
    jobs, unsaid = read_jobs(find_input(TRAINING_JOBS) / "published_throughput.csv")
    with TemporaryDirectory() as folder:
        write_models(Path(folder))
        outcomes, refused = predict_all(jobs, Path(folder))
    headings = ("command, behind `tracekit predict`", "rows", "published", "predicted", "error", "inside")
    return "\n".join(
        (
            "# Training from a config\n",
            "Tokens/s a GPU; *rows*: releases that published the job. A file's name stands for the model's "
            f"config.json; {TITAN_GPU}.toml is 8 H100 with HBM2e at 2.4 TB/s.\n",
            format_table(headings, (one.cells for one in outcomes)),
            "## By source\n",
            format_summary(outcomes),
            "## Ratios between GPUs\n",
            "Of jobs with the same model, sequences and format in one release, whatever their layouts: the predicted "
            "ratio of their throughputs against the published one.\n",
            format_ratios(outcomes),
            "## Not said\n",
            format_table(("job", "rows"), count_unsaid([*unsaid, *refused])),
        )
    )


def format_summary(outcomes: Sequence[Outcome]) -> str:
    """Return a table of errors by source, by model and of all; each published row counts."""
    groups: dict[str, list[Outcome]] = {}
    for one in outcomes:
        model = one.jobs[0].command.partition(".json")[0]
        for name in ("all", one.group, f"{one.group}, {model}"):
            groups.setdefault(name, []).append(one)
    headings = ("source", "rows", "absolute error, mean", "error, mean", "inside", "width, median")
    return format_table(headings, (summarize(name, groups[name]) for name in sorted(groups)))


def summarize(name: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return a row of the summary."""
    errors = [error for one in outcomes for error in one.errors_pct]
    inside = sum(one.inside for one in outcomes)
    width = median(one.high / one.low for one in outcomes for _ in one.jobs)
    shown = f"{mean(map(abs, errors)):.1f} %", f"{mean(errors):+.1f} %"
    return name, str(len(errors)), *shown, f"{inside} of {len(errors)}", f"{width:.2f}"


def format_ratios(outcomes: Sequence[Outcome]) -> str:
    """Return a table of the errors of ratios between GPUs."""
    found: dict[str, list[float]] = {}
    for one, other in combinations(sorted(outcomes, key=lambda each: each.kind[0]), 2):
        if one.kind[0] == other.kind[0] or one.kind[1:] != other.kind[1:]:
            continue
        rates = {job.source: job.rate for job in other.jobs}
        errors = [
            100 * (one.likely / other.likely / (job.rate / rates[job.source]) - 1)
            for job in one.jobs
            if job.source in rates
        ]
        found.setdefault(f"{one.kind[0]} / {other.kind[0]}", []).extend(errors)
    headings = ("GPUs", "ratios", "absolute error, median", "mean", "error, mean")
    return format_table(
        headings,
        (
            (
                name,
                str(len(errors)),
                f"{median(map(abs, errors)):.1f} %",
                f"{mean(map(abs, errors)):.1f} %",
                f"{mean(errors):+.1f} %",
            )
            for name, errors in (*found.items(), ("all", [one for errors in found.values() for one in errors]))
            if errors
        ),
    )


def count_unsaid(rows: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each job that no command says, and how many rows it has."""
    for name, same in groupby(sorted(rows)):
        yield name, str(len(list(same)))


def predict_all(jobs: Sequence[Job], folder: Path) -> tuple[list[Outcome], list[str]]:
    """Return what each command predicts, and for each row that is refused why; small models come first."""
    outcomes, refused, begun = [], [], monotonic()
    models = [*MODELS]

    def get_order(job: Job) -> tuple[int, str]:
        return models.index(job.command.partition(".json")[0]), job.command

    for _, same in groupby(sorted(jobs, key=get_order), key=get_order):
        rows = tuple(same)
        command = rows[0].command
        step, why = predict(command, folder) if monotonic() - begun < MOST_SECONDS else (None, OUT_OF_TIME)
        if step is None:
            refused += [f"{command.partition(' ')[0]}: {why}"] * len(rows)
            continue
        rates = [rows[0].tokens / rows[0].gpus / (1e-6 * us) for us in step]
        outcomes.append(Outcome(rows, rates[0], rates[2], rates[1]))
    return outcomes, refused


def predict(command: str, folder: Path) -> tuple[tuple[float, float, float] | None, str]:
    """Return the step's time, likely, low and high, in microseconds; None with the reason where it is refused."""
    words = [FILE.sub(rf"\g<nodes>{folder}/\g<name>", word) for word in command.split()]
    done = CliRunner().invoke(app, ["predict", *words, "--json", "-q"])
    if done.exit_code:
        lines = done.output.strip().splitlines()
        return None, lines[-1] if lines else str(done.exception)
    (target,) = json.loads(done.stdout)["targets"]
    return (target["step_time_us"], target["low_us"], target["high_us"]), ""


def write_models(folder: Path) -> None:
    """Write the models' configs, and torchtitan's node."""
    for name, config in MODELS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    gpu = (GPU_FILES / "h100-sxm.toml").read_text(encoding="utf-8")
    gpu = gpu.replace("size_gb = 80", "size_gb = 96").replace("bandwidth_gbps = 3352", "bandwidth_gbps = 2400")
    (folder / f"{TITAN_GPU}-gpu.toml").write_text(re.sub(r"aliases = .*\n", "", gpu))
    (folder / f"{TITAN_GPU}.toml").write_text(
        f'name = "Grand Teton"\ngpu = "{folder}/{TITAN_GPU}-gpu.toml"\ngpus_per_node = 8\nfabric = "nvswitch"\n'
        'pcie_gen = 5\nnetwork = "roce"\nnics_per_node = 8\nnic_gbit = 400\n'
        '[sources]\ntitan = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"\n[sourced]\ngpu = "titan"\n'
    )


def read_jobs(path: Path) -> tuple[list[Job], list[str]]:
    """Read the published throughputs, and name the rows of language models that no command says."""
    jobs, unsaid = [], []
    for row in pl.read_csv(path, infer_schema_length=None).iter_rows(named=True):
        source, job = row["source"], row["job"]
        known = next((model for pattern, model in NAMES if re.search(pattern, job)), None)
        if not source.startswith((TITAN, BRIDGE)):
            continue
        if known is None or UNSAID.search(job):
            unsaid.append(job)
        elif source == TITAN:
            jobs.append(read_titan(row, known))
        else:
            jobs.extend(read_bridge(row, known))
    return jobs, unsaid


def read_bridge(row: dict[str, str], model: str) -> Iterator[Job]:
    """Yield the jobs of a row of Megatron-Bridge's: one, or one more behind it in parentheses."""
    precisions = row["precision"] or ("FP8-CS" if row["system"] == "DGX-H100" else "FP8-CS (FP8-MX)")
    meant = MISPRINTS.get((row["source"], row["system"], model), {})
    for place in range(len(split_pair(row["value"]))):
        sizes = dict(map(split_size, row["batch"].split())) | meant
        layout = dict(split_size(pick(word, place)) for word in re.split(r" (?=[a-z])", row["layout"])) | meant
        ranks = {name: layout.get(name, 1) or 1 for name in ("tp", "pp", "cp", "ep")}
        gpus, (node, gpu) = int(row["gpus"]), NODES[row["system"]]
        data = gpus // prod(ranks[name] for name in ("tp", "pp", "cp"))
        passes = sizes["gbs"] // (sizes["mbs"] * data)
        cluster = f"{gpus}x{gpu}" if gpus <= node else f"{gpus // node}x{node}x{gpu}@ndr400"
        words = [
            f"{model}.json --train --seq {sizes['seq']} --batch {sizes['mbs']}",
            f"--precision {PRECISIONS[pick(precisions, place)]} --stack {STACKS[BRIDGE]}",
            f"--cluster {cluster}",
            *(f"--{name} {ranks[name]}" for name in ("tp", "pp", "cp", "ep") if ranks[name] > 1),
            *([f"--dp {data}"] if data > 1 else []),
            *(["--fsdp"] if layout.get("fsdp") else []),
            *(["--sequence-parallel"] if ranks["tp"] > 1 else []),
            *([f"--micro-batches {passes}"] if passes > 1 else []),
            *(["--pp-schedule interleaved"] if layout.get("vp", 1) > 1 and ranks["pp"] > 1 else []),
        ]
        rate = float(pick(row["value"], place))
        yield Job(row["source"], " ".join(words), sizes["gbs"] * sizes["seq"], gpus, rate)


def read_titan(row: dict[str, str], model: str) -> Job:
    """Return the job of a row of torchtitan's."""
    name = row["job"]
    if model == "llama3-70b":
        fsdp, tp, batch, compiled, recompute = 32, 8, 16, True, "full"
    elif name.startswith("8B") or "TP8" in name:
        fsdp, tp, batch, compiled, recompute = 8, 8, 12, True, "selective"
    else:
        fsdp, tp, batch, compiled, recompute = (
            int(name.partition("FSDP")[2].split()[0]),
            1,
            2,
            "compile" in name,
            "selective",
        )
    precision = "fp8" if re.search(r"fp8|float8", name) else "bf16"
    gpus = fsdp * tp
    own = "h100" in row["system"]
    nodes = gpus // 8
    cluster = f"{'' if nodes == 1 else f'{nodes}x'}{TITAN_GPU}.toml" if own else f"{nodes}x8xh200-sxm@ndr400"
    words = [
        f"{model}.json --train --seq 8192 --batch {batch} --precision {precision} --stack torchtitan",
        *(["--compile"] if compiled else []),
        f"--recompute {recompute} --cluster {cluster} --dp {fsdp} --fsdp",
        *([f"--tp {tp} --sequence-parallel"] if tp > 1 else []),
        "--attention flash",
        *([f"--power-cap {TITAN_LIMIT}"] if own else []),
    ]
    return Job(TITAN, " ".join(words), fsdp * batch * 8192, gpus, float(row["value"]))


def split_pair(text: str) -> list[str]:
    """Split ``A (B)`` into both."""
    return [one for one in re.split(r" ?[()]", text) if one]


def pick(text: str, place: int) -> str:
    """Return one of a pair; the first of one that is alone, with the letters before it."""
    found = split_pair(text)
    if place == 0 or len(found) == 1:
        return found[0]
    letters = re.match(r"[a-z]*(?=\d)", found[0])
    return (letters[0] if letters else "") + found[place]


def split_size(word: str) -> tuple[str, int]:
    """Split a name and its number: 1 for ``n/a``, 0 where there is none."""
    name, number = re.fullmatch(r"([a-z]+?)(\d*|n/a)", word).groups()  # type: ignore[union-attr]
    return name, int(number) if number.isdigit() else int(bool(number))
