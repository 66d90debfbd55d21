"""What composes: each kind of input with each kind of question, run as commands.

A cell is ``works`` or the code of the message that refuses it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from typer.testing import CliRunner, Result

import tracekit as tk
from tests.fleet.test_fleet import save as save_ranks
from tests.ingest.formats.nsight_files import build_tables, write_database
from tests.jobs import served
from tracekit.cli.app import app
from tracekit.errors import TracekitError

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "answers"
SAMPLE = ROOT / "sample_traces" / "synthetic_transformer_train.json.gz"
WORKS, USAGE, CRASH = "works", "usage", "crash"
PROGRAM = """
import torch
from torch import nn

def make():
    layers = [layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())]
    return nn.Sequential(*layers), torch.empty(64, 256)
"""
CONFIG = """{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000,
"torch_dtype": "bfloat16"}
"""
EXPERTS = """{"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 256,
"intermediate_size": 512, "moe_intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
"num_key_value_heads": 4, "head_dim": 64, "num_experts": 8, "num_experts_per_tok": 2, "vocab_size": 1000,
"torch_dtype": "bfloat16"}
"""
ON_EIGHT = "--cluster 8xh100-sxm"
ON_UNLIKE = "--cluster 4xh100-sxm+4xa100-sxm-80gb@eth100"
ASKS = {
    "a GPU": "--gpu b200",
    "a CPU": "--gpu epyc-9654:8",
    "a CPU, --power-cap": "--gpu epyc-9654 --power-cap 300W",
    "a cluster": ON_EIGHT,
    "a cluster of CPUs": "--cluster 2xepyc-9654",
    "--dp": f"{ON_EIGHT} --dp 8",
    "--tp": f"{ON_EIGHT} --tp 2",
    "--pp": f"{ON_EIGHT} --pp 2 --micro-batches 4",
    "--ep": f"{ON_EIGHT} --dp 8 --ep 8",
    "--fsdp": f"{ON_EIGHT} --dp 8 --fsdp",
    "--cp": f"{ON_EIGHT} --cp 2",
    "--cp-ring": f"{ON_EIGHT} --cp 2 --cp-ring",
    "--sequence-parallel": f"{ON_EIGHT} --tp 2 --sequence-parallel",
    "--batch": "--gpu b200 --batch 2",
    "--batch max": "--gpu b200 --batch max",
    "--seq max": "--gpu b200 --seq max",
    "--context": "--gpu b200 --context 4096",
    "--compile": "--gpu b200 --compile",
    "--train": "--gpu b200 --train",
    "--micro-batches": "--gpu b200 --train --micro-batches 2",
    "--recompute": "--gpu b200 --train --recompute full",
    "--lora": "--gpu b200 --train --lora 8",
    "--lora --fsdp": f"{ON_EIGHT} --train --lora 8 --dp 8 --fsdp",
    "--lora --tp": f"{ON_EIGHT} --train --lora 8 --tp 2",
    "--optimizer adamw-8bit": f"{ON_EIGHT} --train --optimizer adamw-8bit --dp 8 --zero 1",
    "--optimizer muon": f"{ON_EIGHT} --train --optimizer muon --dp 8",
    "--optimizer muon --fsdp": f"{ON_EIGHT} --train --optimizer muon --dp 8 --fsdp",
    "--zero": f"{ON_EIGHT} --dp 8 --zero 1",
    "--gradient-compression": f"{ON_EIGHT} --dp 8 --gradient-compression bf16",
    "--gradient-compression --train": f"{ON_EIGHT} --train --dp 8 --gradient-compression bf16",
    "--gradient-compression int8 --train": f"{ON_EIGHT} --train --dp 8 --gradient-compression int8",
    "--gradient-compression powersgd:4": f"{ON_EIGHT} --dp 8 --gradient-compression powersgd:4",
    "--gradient-compression topk:0.01 --train": f"{ON_EIGHT} --train --dp 8 --gradient-compression topk:0.01",
    "--gradient-compression --fsdp --train": f"{ON_EIGHT} --train --dp 8 --fsdp --gradient-compression bf16",
    "--sync-every": f"{ON_EIGHT} --dp 8 --sync-every 100",
    "--sync-every --train": f"{ON_EIGHT} --train --optimizer fused-adamw --dp 8 --sync-every 100 --sync-within 4",
    "unlike GPUs": f"{ON_UNLIKE} --dp 8",
    "unlike GPUs --fsdp --train": f"{ON_UNLIKE} --train --dp 8 --fsdp",
    "unlike GPUs --pp": f"{ON_UNLIKE} --dp 4 --pp 2 --micro-batches 4",
    "--balance": f"{ON_UNLIKE} --dp 8 --balance",
    "--balance --train": f"{ON_UNLIKE} --train --dp 8 --batch 2 --balance",
    "--precision": "--gpu b200 --precision fp8",
    "--stack": "--gpu b200 --stack hf",
    "--decode": "--gpu b200 --decode --batch 8 --context 1024",
    "--decode --tp": f"{ON_EIGHT} --decode --tp 2 --precision fp8",
    "--decode --ep": f"{ON_EIGHT} --decode --batch 8 --ep 8",
    "--decode --tp --ep": f"{ON_EIGHT} --decode --tp 2 --ep 2",
    "--decode --pp": f"{ON_EIGHT} --decode --tp 2 --pp 2",
    "--decode --all2all-backend": f"{ON_EIGHT} --decode --batch 8 --ep 8 --all2all-backend deepep",
    "--decode --cache-type": "--gpu b200 --decode --batch 8 --cache-type nvfp4",
    "--prefill": "--gpu b200 --prefill --seq 128",
    "--prefill --tp": f"{ON_EIGHT} --prefill --seq 128 --tp 2",
    "--prefill --ep": f"{ON_EIGHT} --prefill --seq 128 --ep 8",
    "--prefill --pp": f"{ON_EIGHT} --prefill --seq 128 --pp 2",
    "--host": "--gpu b200 --host typical",
    "--clock": "--gpu b200 --clock 1200MHz",
    "--power-cap": "--gpu b200 --power-cap 600W",
    "--critical-batch": f"{ON_EIGHT} --dp 8 --tokens-to-run 1B --critical-batch 1M",
    "--what-if": "--gpu b200 --what-if scale(family=gemm,0.5)",
    "--measured": "--gpu b200 --measured MEASURED",
    "--price": "--gpu b200 --price b200=5",
    "--engine": "--gpu b200 --engine local",
    "--json": "--gpu b200 --json",
    **{f"-o {suffix}": f"--gpu b200 -o OUT.{suffix}" for suffix in ("html", "md", "json", "xlsx", "csv", "parquet")},
}
"""The options of `tracekit predict` behind each question."""


DEPTHS = "--vary num_hidden_layers=1,5"
SEARCH_ASKS = {
    "a GPU": f"{DEPTHS} --gpu b200",
    "nothing varied": "--gpu b200",
    "--train": f"{DEPTHS} --gpu b200 --train --optimizer fused-adamw --seq 64",
    "--compile --batch": f"{DEPTHS} --gpu b200 --compile --batch 2 --seq 64",
    "--dp": f"{DEPTHS} {ON_EIGHT} --dp 8 --train --seq 64",
    "--decode": f"{DEPTHS} --gpu b200 --decode",
    "--what-if": f"{DEPTHS} --gpu b200 --seq 64 --what-if scale(family=gemm,0.5)",
    "-o html": f"{DEPTHS} --gpu b200 --gpu h100-sxm --seq 64 -o OUT.html",
}
"""The options of `tracekit search` behind each question."""


def make_rank(folder: Path) -> list[str]:
    """One rank of a training job."""
    return [str(SAMPLE)]


def make_ranks(folder: Path) -> list[str]:
    """Two ranks in one piece."""
    (folder / "ranks").mkdir()
    return [str(save_ranks(folder / "ranks", 2))]


def make_fleet(folder: Path) -> list[str]:
    """Two ranks, rank by rank."""
    (folder / "fleet").mkdir()
    return [str(save_ranks(folder / "fleet", 2)), "--engine", "local"]


def make_program(folder: Path) -> list[str]:
    """A program that never ran."""
    (folder / "model.py").write_text(PROGRAM)
    return [f"{folder / 'model.py'}:make"]


def make_config(folder: Path) -> list[str]:
    """A language model's config.json."""
    (folder / "config.json").write_text(CONFIG)
    return [str(folder / "config.json")]


def make_experts(folder: Path) -> list[str]:
    """A config.json of a model with experts."""
    (folder / "config.json").write_text(EXPERTS)
    return [str(folder / "config.json")]


def make_recommender(folder: Path) -> list[str]:
    """A recommender's tables and layers."""
    return [str(ROOT / "sample_traces" / "dlrm_dcnv2.json")]


def make_served(folder: Path) -> list[str]:
    """A trace of a serving engine."""
    marks = ("execute_context_0(0)_generation_8(8)",) * 4
    return [str(served(*marks).save(folder / "served.json"))]


def make_nsight(folder: Path) -> list[str]:
    """A database of Nsight Systems."""
    return [str(write_database(folder / "report.sqlite", build_tables(tk.load(SAMPLE).rank())))]


def make_chakra(folder: Path) -> list[str]:
    """A graph in Chakra's format."""
    place = folder / "chakra"
    done = CliRunner().invoke(app, ["export", str(SAMPLE), "--format", "chakra", "-o", str(place), "-q"])
    assert done.exit_code == 0, done.output
    return [str(next(place.glob("*.et")))]


INPUTS: dict[str, Callable[[Path], list[str]]] = {
    "one rank": make_rank,
    "ranks": make_ranks,
    "ranks, --engine": make_fleet,
    "program": make_program,
    "config.json": make_config,
    "config.json of experts": make_experts,
    "recommender": make_recommender,
    "served trace": make_served,
    "Nsight": make_nsight,
    "Chakra": make_chakra,
}
"""How to make an input of each kind in an empty folder: what stands behind `tracekit predict`."""


SERVED_ASKS = {
    "nothing else": "--gpu b200",
    "a CPU": "--gpu epyc-9654",
    "a cluster": ON_EIGHT,
    "--concurrency": "--gpu b200 --concurrency 4",
    "--rate": "--gpu b200 --rate 4",
    "both loads": "--gpu b200 --concurrency 4 --rate 4",
    "--lengths": "--gpu b200 --concurrency 4 --lengths LENGTHS",
    "--spread": "--gpu b200 --concurrency 4 --spread 0.2",
    "--prefix-hits": "--gpu b200 --concurrency 4 --prefix-hits 0.5",
    "--draft-tokens": "--gpu b200 --concurrency 4 --draft-tokens 3 --accepted-tokens 2",
    "--apart": "--gpu b200 --rate 4 --apart 1:1",
    "--apart at once": "--gpu b200 --concurrency 4 --apart 1:1",
    "limits": "--gpu b200 --ttft-below 1s --tpot-below 30ms",
    "--tp": f"{ON_EIGHT} --tp 2",
    "--ep": f"{ON_EIGHT} --ep 2",
    "--pp": f"{ON_EIGHT} --tp 2 --pp 2",
    "--all2all-backend": f"{ON_EIGHT} --ep 8 --all2all-backend deepep",
    "--precision": "--gpu b200 --precision fp8 --cache-type fp8",
    "--cache-type": "--gpu b200 --cache-type nvfp4",
    "--framework": "--gpu b200 --framework sglang==0.5.6",
    "the engine's settings": "--gpu b200 --max-batched-tokens 512 --max-sequences 16 --memory-share 0.8",
    "--price": "--gpu b200 --price b200=5",
    "--json": "--gpu b200 --json",
    **{f"-o {suffix}": f"--gpu b200 -o OUT.{suffix}" for suffix in ("html", "svg", "json", "csv", "txt")},
}
"""The options of `tracekit serving` behind each question."""


def make_calibrated(folder: Path) -> list[str]:
    """A config and a trace of the engine that serves it."""
    return [*make_config(folder), *make_served(folder), "--source-gpu", "a100-sxm-80gb"]


def make_unserved(folder: Path) -> list[str]:
    """A config and a trace of training."""
    return [*make_config(folder), str(SAMPLE)]


@dataclass(frozen=True)
class Composition:
    """The inputs and the questions of a command.

    Attributes:
        command: Its name.
        inputs: How to make an input of each kind.
        asks: The options behind each question.
        table: Its cells.
    """

    command: str
    inputs: Mapping[str, Callable[[Path], list[str]]]
    asks: Mapping[str, str]
    table: Path

    def run_row(self, kind: str, folder: Path) -> Iterator[str]:
        """Yield the cells of one kind of input, in the order of the questions."""
        words = self.inputs[kind](folder)
        (folder / "lengths.csv").write_text("input,output\n128,16\n256,8\n")
        for number, options in enumerate(self.asks.values()):
            places = {"MEASURED": str(SAMPLE), "LENGTHS": str(folder / "lengths.csv")} | {
                f"OUT.{suffix}": str(folder / f"{number}.{suffix}")
                for suffix in ("html", "md", "svg", "txt", "json", "xlsx", "csv", "parquet")
            }
            asked = [places.get(word, word) for word in options.split()]
            yield name_outcome(CliRunner().invoke(app, [self.command, *words, *asked, "-q"]))

    def read_table(self) -> pl.DataFrame:
        """Read the table: a row per kind of input, a column per question."""
        return pl.read_csv(self.table, infer_schema=False)


def name_outcome(done: Result) -> str:
    """Name how a command ended."""
    if done.exit_code == 0:
        return WORKS
    if isinstance(done.exception, TracekitError):
        return done.exception.catalogue_message.code
    return USAGE if done.exit_code == 2 else CRASH


COMPOSITIONS = {
    one.command: one
    for one in (
        Composition("predict", INPUTS, ASKS, GOLDEN / "what_composes.csv"),
        Composition(
            "serving",
            {
                "config.json": make_config,
                "config.json of experts": make_experts,
                "with its engine's trace": make_calibrated,
                "with another trace": make_unserved,
                "an engine's trace": make_served,
                "recommender": make_recommender,
            },
            SERVED_ASKS,
            GOLDEN / "what_composes_serving.csv",
        ),
        Composition(
            "search",
            {
                "one rank": make_rank,
                "a program's code": make_program,
                "config.json": make_config,
                "config.json of experts": make_experts,
            },
            SEARCH_ASKS,
            GOLDEN / "what_composes_search.csv",
        ),
    )
}
"""The tables by command."""
