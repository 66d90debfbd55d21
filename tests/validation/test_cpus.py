"""Steps on this machine's CPU: calibrated, recorded, predicted and run anew."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.validation.cpu_recording import OffCore
from tests.validation.studies.whole_jobs.cpus import predict_steps, summarise
from tests.validation.study import read_published

pytestmark = pytest.mark.heavy

MAX_ERRORS_PCT, MIN_INSIDE_PCT = {"by_law": 40.0, "by_trace": 25.0}, 75.0
"""Of few short steps on any machine; the study's table has those of six programs."""


def test_steps_on_this_cpu(tmp_path: Path) -> None:
    import torch

    from tracekit.hosts.cpu_bench import bench_cpu

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        file = tmp_path / "this_cpu.toml"
        file.write_text(bench_cpu().to_toml(), encoding="utf-8")
    finally:
        torch.set_num_threads(threads)
    steps = list(predict_steps(("ViT", "DLRM"), str(file)))
    assert len(steps) == 8
    for which, most in MAX_ERRORS_PCT.items():
        error, inside = summarise(steps, which)
        assert error < most
        assert inside >= MIN_INSIDE_PCT


def test_time_off_the_core_is_taken_out() -> None:
    off = OffCore()
    off.outs, off.ins = [100, 300], [150, 400]
    assert off.remove(np.array([50, 100, 120, 150, 200, 300, 399, 400, 500])).tolist() == [
        *(50, 100, 100, 100, 150, 250, 250, 250, 350)
    ]


def test_published_steps_name_known_cpus_and_sources() -> None:
    from predictors import load_gpu
    from tests.validation.cpu_programs import PUBLISHED

    table = read_published("cpu_steps")
    assert all(load_gpu(name).is_cpu for name in table["cpu"].unique())
    assert set(table["program"]) <= PUBLISHED.keys()
    assert set(table["source"]) <= set(read_published("sources")["source"])
    assert table.height >= 10
