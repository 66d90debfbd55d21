"""What a machine with a GPU runs without attention, tried on the CPU: its archive, what it notes, and its tables."""

import json
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

pytest.importorskip("torch")

import torch

from sample_traces.record import hide_folders
from sample_traces.workloads import WORKLOADS
from tests.validation import study
from tests.validation.on_gpu import __main__ as command
from tests.validation.on_gpu import clocks, plans, power_caps, stages, tables
from tests.validation.on_gpu.hold import FIRST, hold
from tests.validation.on_gpu.lookups import draw_indices
from tests.validation.on_gpu.session import Session


def unpack(path: Path, folder: Path) -> Path:
    """Unpack an archive, and return its folder."""
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    return folder / path.name.removesuffix(".tar.gz")


@pytest.fixture
def two_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: str, small: bool) -> None:
        raise RuntimeError("out of memory\nand more")

    monkeypatch.setattr(stages, "WORKLOADS", {"llama_prefill": WORKLOADS["llama_prefill"], "large": fail})


@pytest.mark.usefixtures("two_workloads")
def test_a_workload_that_fails_is_noted_and_the_others_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "cpu.tar.gz"
    asked = [str(path), "--device", "cpu", "--shorten", "100"]
    assert command.main(asked) == 0
    folder = unpack(path, tmp_path / "out")
    assert {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} == {
        *("machine.json", "steps.json", "heat.json"),
        "samples/cpu_llama_prefill.json.gz",
    }
    samples, heat = json.loads((folder / "machine.json").read_text())["stages"]
    assert samples["failed"] == {"large": "RuntimeError: out of memory"}
    assert heat["failed"] == {}
    steps = json.loads((folder / "steps.json").read_text())
    assert steps["llama_prefill"]["held_us"] > 0
    with tarfile.open(path) as archive:
        assert {(member.uname, member.uid) for member in archive} == {("", 0)}


@pytest.mark.usefixtures("two_workloads")
def test_what_does_not_begin_in_time_is_left_out(tmp_path: Path) -> None:
    session = Session(tmp_path, "cpu", minutes=0)
    session.run_stage("samples", stages.record_samples)
    (stage,) = json.loads((tmp_path / "machine.json").read_text())["stages"]
    assert stage["left_out"] == ["llama_prefill", "large"]


def test_a_stage_that_fails_as_a_whole_leaves_the_next_ones(tmp_path: Path) -> None:
    session = Session(tmp_path, "cpu", minutes=1)
    session.run_stage("bench", lambda session: 1 / 0)  # type: ignore[arg-type]
    session.run_stage("idle", lambda session: None)
    first, second = json.loads((tmp_path / "machine.json").read_text())["stages"]
    assert first["failed"] == {"all": "ZeroDivisionError: division by zero"}
    assert second["name"] == "idle"


def test_without_a_gpu_it_says_how_to_try_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert command.main([str(tmp_path / "out.tar.gz")]) == 1
    assert "--device cpu" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_holding_counts_calls_and_takes_the_second_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    moments = iter([0.0, 1, 2, 3, 4, 5, 7, 9, 11, 13, 15])
    monkeypatch.setattr("tests.validation.on_gpu.hold.time.perf_counter", lambda: next(moments))
    held = hold(lambda: None, 14, calls=4)
    assert held["repetitions"] == 10
    assert held["first_us"] == 1e6 / 4
    assert held["held_us"] == 2e6 / 4
    assert held["curve"][0] == [1.0, 250_000.0]


def test_it_repeats_until_the_first_ones_are_complete() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert hold(lambda: None, 0)["repetitions"] == FIRST


def test_indices_follow_zipfs_law() -> None:
    torch.manual_seed(0)
    even = draw_indices(10, 10_000, 0, "cpu").bincount(minlength=10)
    assert even.min() > 850
    skewed = draw_indices(10, 10_000, 1.0, "cpu").bincount(minlength=10).sort(descending=True).values
    harmonic = sum(1 / rank for rank in range(1, 11))
    assert skewed[0].item() == pytest.approx(10_000 / harmonic, rel=0.05)
    assert (skewed[0] / skewed[1]).item() == pytest.approx(2, rel=0.1)


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name that has a limit of 700 W and writes down what it was called with."""
    program, calls = tmp_path / "nvidia-smi", tmp_path / "calls"
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\necho 700.00\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return calls


def test_the_power_limit_is_restored_though_the_measurement_fails(nvidia_smi: Path) -> None:
    with pytest.raises(ZeroDivisionError), power_caps.limit_power(450):
        raise ZeroDivisionError
    assert [line.split()[-1] for line in nvidia_smi.read_text().splitlines()] == [
        "--format=csv,noheader,nounits",
        "--power-limit=450",
        "--power-limit=700",
    ]


def test_no_limit_is_set_where_none_was_asked_for(nvidia_smi: Path, tmp_path: Path) -> None:
    power_caps.measure_power_caps(Session(tmp_path, "cpu", minutes=1))
    assert not nvidia_smi.exists()


def test_a_reading_that_the_gpu_does_not_have_stays_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> float:
        raise RuntimeError("not supported")

    names = {"NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2, "NVML_TEMPERATURE_GPU": 0}
    functions = {
        "nvmlInit": lambda: None, "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetClockInfo": lambda gpu, clock: 1000 * clock + gpu,
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**names, **functions))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    readings = clocks.open_readings()
    assert clocks.read_or_leave(readings["memory_mhz"]) == "2003"
    assert clocks.read_or_leave(readings["energy_j"]) == ""
    assert clocks.read_or_leave(refuse) == ""


CLOCKS = pl.DataFrame(
    {
        "time_s": [100.0, 101, 102, 103],
        "sm_mhz": [1980, 1400, 1300, 1980],
        "power_w": [100.0, 700, 600, 100],
        "energy_j": [50.0, 150, 850, 1450],
        "celsius": [40, 50, 60, 50],
    }
)


def test_clocks_are_averaged_and_energy_is_divided_over_the_time_held() -> None:
    held = {"begin_s": 100.5, "end_s": 102.5, "first_us": 1000.0, "held_us": 1200.0, "repetitions": 100}
    (row,) = tables.tabulate_steps({"gpt2_train": held}, CLOCKS).to_dicts()
    assert row == {
        "workload": "gpt2_train", "first_ms": 1.0, "held_ms": 1.2, "sm_mhz": 1350.0, "power_w": 650.0,
        "joules": pytest.approx((1150 - 100) / 100),
    }  # fmt: skip


def test_the_rate_of_the_heating_gemm_stands_beside_the_clock_then() -> None:
    held = {"m": 1000, "n": 1000, "k": 1000, "begin_s": 100.0, "curve": [[0.9, 4.0], [2.1, 5.0]]}
    rows = tables.tabulate_heat(held, CLOCKS)
    assert rows["tflops"].to_list() == [500.0, 400.0]
    assert rows["sm_mhz"].to_list() == [1400, 1300]


def test_kernels_of_look_ups_are_summed_by_their_short_name() -> None:
    case = {"rows": 10, "width": 4, "bags": 2, "pooling": 1, "alpha": 0.0, "unique": 2}
    times = {"void at::native::(anonymous namespace)::sum<float>(int)": 2.0, "void at::native::sum<double>(int)": 1.0}
    rows = tables.tabulate_lookups([case | {"forward_us": times, "train_us": {"Memset (Device)": 1.0}}])
    assert rows.select("phase", "kernel", "us").rows() == [("forward", "at::native::sum", 3.0)]


def test_committed_tables_are_of_known_gpus_and_hold_positive_times() -> None:
    folders = sorted((study.MEASURED).iterdir())
    assert [folder.name for folder in folders] == ["h100-sxm", "h200-sxm"]
    for folder in folders:
        kernels = pl.read_csv(folder / "kernels.csv", infer_schema_length=None)
        assert kernels.select(pl.min_horizontal(pl.col("measured_us", "profiled_us", "held_us").min())).item() > 0
        assert kernels["sm_mhz"].is_between(1000, 2100).all()


def test_folders_are_taken_out_of_a_trace() -> None:
    assert hide_folders({"kernel_file": "/tmp/torchinductor_me/a.py", "name": "a/b"}) == {
        "kernel_file": "a.py",
        "name": "a/b",
    }


def test_plans_are_measured_on_several_gpus_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(tmp_path / "tables.json"), "--cluster", "2xh100-sxm", "-o", str(tmp_path / "plans.csv")]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert plans.main(arguments) == 1
    assert "finds 1 GPUs; two are needed" in capsys.readouterr().err
    assert plans.main([*arguments, "--device", "cpu", "--ranks", "2"]) == 1
    assert "tables.json" in capsys.readouterr().err


def test_the_shards_of_a_table_look_up_all_that_is_drawn() -> None:
    parts = [plans.Shard(0, "row_wise", 10, first, 5, 4, 3, 1.05) for first in (0, 5)]
    (rows, counts), (others, rest) = (plans.draw_bags(one, 8, "cpu") for one in parts)
    assert (counts + rest).tolist() == [3] * 8
    assert (rows.numel(), others.numel()) == (int(counts.sum()), int(rest.sum()))
    assert max(rows.max(), others.max()) < 5


def test_a_rank_s_step_returns_gradients_to_the_owners() -> None:
    lookups = plans.TorchLookups([plans.Shard(0, "table_wise", 6, 0, 6, 2, 1, 0.0)], 4, "cpu")
    assert lookups.look_up().tolist() == [[0, 0]] * 4
    lookups.update(torch.ones(4, 2))
    assert sum(weight.sum().item() for weight in lookups._weights) == pytest.approx(-0.01 * 4 * 2)


def test_measured_plans_are_told_with_their_order() -> None:
    rows = [("a", 100.0, 110.0, 90.0, 120.0), ("b", 200.0, 190.0, 150.0, 195.0), ("c", 150.0, 200.0, 100.0, 300.0)]
    assert plans.describe_order(rows) == (
        "2 of 3 pairs ordered rightly; error +10 % in the median; 2 of 3 inside their interval"
    )
