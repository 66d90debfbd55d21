"""Known hosts by name, and the bench of this machine's host."""

import json
import sys
from itertools import count

import pytest
from typer.testing import CliRunner

from tests.codes import has_code
from tracekit.cli.app import app
from tracekit.errors import CalibrationError
from tracekit.hosts import bench
from tracekit.hosts.bench import bench_host
from tracekit.hosts.usual import find_host, list_hosts
from tracekit.prediction.target_host import parse_host


def test_hosts_have_names_of_their_own_and_are_sorted_by_speed() -> None:
    known = list_hosts()
    assert len({one.slug for one in known}) == len(known) >= 19
    speeds = [one.speed for one in known]
    assert speeds == sorted(speeds, reverse=True)


def test_a_host_is_found_by_its_name_or_a_part_that_no_other_has() -> None:
    dgx = find_host("v100-dgx-of-2021")
    assert dgx is not None
    assert dgx == find_host(" V100-DGX ")
    assert parse_host("v100-dgx") == dgx.speed < 0.3
    assert find_host("v100") is None  # several
    assert find_host("20") is None


@pytest.mark.parametrize("name", ["", "4", "mi300x", "v100-dgx-of-2021.toml", "../v100-dgx-of-2021", "dgx " * 100])
def test_names_of_no_host_or_of_several_are_refused(name: str) -> None:
    assert find_host(name) is None


def test_a_number_is_a_speed_though_a_name_holds_it() -> None:
    """404 all-reduces: only that host's name has a 4."""
    assert parse_host("4") == 4


def test_the_command_lists_them() -> None:
    shown = CliRunner().invoke(app, ["hosts"])
    assert shown.exit_code == 0
    assert all(one.slug in shown.output for one in list_hosts())
    listed = json.loads(CliRunner().invoke(app, ["hosts", "--json"]).output)
    assert [one["slug"] for one in listed] == [one.slug for one in list_hosts()]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench of a few steps."""
    pytest.importorskip("torch")
    for name, value in {"WARM_UP_SECONDS": 0.0, "BLOCK_SECONDS": 0.01, "BLOCKS": 3}.items():
        monkeypatch.setattr(bench, name, value)


@pytest.mark.usefixtures("quick")
def test_the_bench_counts_steps_a_second() -> None:
    """With a clock of 1 ms a reading, each step takes 1 ms."""
    ticks = count()
    found = bench_host(lambda: next(ticks) / 1000)
    assert found.steps_per_s == pytest.approx(1000, rel=0.15)
    assert found.spread_pct == 0


@pytest.mark.usefixtures("quick")
def test_the_command_benches_this_machine() -> None:
    import torch

    threads = torch.get_num_threads()
    run = CliRunner().invoke(app, ["calibrate", "--host", "--json"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.output)
    assert found["steps_per_s"] > 1
    assert found["torch"] == torch.__version__
    assert torch.get_num_threads() == threads
    assert "steps a second" in CliRunner().invoke(app, ["calibrate", "--host"]).output


def test_the_bench_needs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CalibrationError, check=has_code("host-bench-needs-torch")):
        bench_host()
    run = CliRunner().invoke(app, ["calibrate", "--host"])
    assert run.exit_code == 1
