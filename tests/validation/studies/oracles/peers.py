"""The other tools, where they are installed, and the real traces that they are tried on."""

import contextlib
import io
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.validation.study import REAL_TRACES, MissingInputError, find_input

PEERS = {
    "TraceLens": "TraceLens of github.com/AMD-AGI/TraceLens",
    "hta": "HolisticTraceAnalysis",
    "chakra": "Chakra of github.com/mlcommons/chakra",
}
"""Package -> what to install."""
TRACES = (
    "h100_bert_small_inference", "h100_vgg13_train_bs512", "h100_vit_inference", "mi300x_bert_small_inference",
    "mi300x_ddp_train_rank0_of_4", "a100_resnet50_train_rank0_of_2", "h100_qwen15_05b_inference",
    "v100_dlrm_train_rank0_of_8", "hta_critical_path_alexnet", "b200_eager_rank0_of_8", "vllm_decode_full_graph",
    "sglang_qwen3_8b_decode",
)  # fmt: skip
"""Training and inference, with and without communication and CUDA graphs, of NVIDIA and AMD; together minutes."""


def require(package: str) -> None:
    """Refuse a machine without a tool.

    Raises:
        MissingInputError: It isn't installed.
    """
    if find_spec(package) is None:
        raise MissingInputError(f"install {PEERS[package]}")


def list_traces() -> list[Path]:
    """List the traces that the other tools are tried on.

    Raises:
        MissingInputError: The folder isn't there.
    """
    return [path for name in TRACES if (path := find_input(REAL_TRACES) / f"{name}.json.gz").exists()]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what the tools print and warn of to themselves."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def open_tracelens(path: Path) -> Any:
    """Open a trace with TraceLens."""
    from TraceLens.TreePerf.tree_perf import TreePerfAnalyzer

    with quiet():
        return TreePerfAnalyzer.from_file(str(path))


def measure_tracelens(analyzer: Any) -> dict[str, float]:
    """Return TraceLens's times of a trace: ``busy_time``, ``exposed_comm_time`` and others, in microseconds.

    Raises:
        ValueError: It finds no GPU activity.
    """
    with quiet():
        times: dict[str, float] = analyzer.GPUEventAnalyser(analyzer.tree.events).compute_metrics()
    return times
