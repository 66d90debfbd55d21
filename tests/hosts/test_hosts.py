"""How fast a host is by what its ops take, and which host is usual."""

import math
from collections.abc import Iterator

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors import list_gpus, load_gpu
from tracekit.hosts import find_usual_host, fingerprint, measure_host_speed, usual
from tracekit.hosts.fingerprint import compute_self_times
from tracekit.hosts.usual import HostMixture
from tracekit.testing import TraceBuilder
from tracekit.trace import RankTrace

REFERENCE = pl.DataFrame({"name": [f"aten::op{number}" for number in range(12)], "reference_ns": [2000.0] * 12})


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference host that takes 2 us for each of twelve ops."""
    monkeypatch.setattr(fingerprint, "load_op_times", lambda: REFERENCE)


@pytest.fixture(autouse=True)
def forget_usual_hosts() -> Iterator[None]:
    """Machines that a test makes up are no other test's."""
    find_usual_host.cache_clear()
    yield
    find_usual_host.cache_clear()


def record(*durations_us: float, repeats: int = 10, names: str = "aten::op") -> RankTrace:
    """Each of the ops so often, one after the other, and a kernel."""
    builder, start = TraceBuilder(), 0.0
    for number, us in enumerate(durations_us):
        for _ in range(repeats):
            builder.op(f"{names}{number}", start, us)
            start += us + 5
    return builder.kernel("kernel", start + 20, 10, launch=start).load().rank()


def test_self_time_is_what_no_nested_op_or_call_takes() -> None:
    builder = TraceBuilder().op("aten::linear", 0, 10).op("aten::addmm", 2, 7).call("cudaEventRecord", 4, 4)
    builder.op("aten::relu", 10, 3).op("aten::other", 1, 5, thread=7)
    rank = builder.kernel("kernel", 40, 10, launch=20).load().rank()
    times = dict(compute_self_times(rank).filter(pl.col("name") != "cudaLaunchKernel").rows())
    assert times == {
        "aten::linear": 3000, "aten::addmm": 3000, "cudaEventRecord": 4000, "aten::relu": 3000, "aten::other": 5000
    }  # fmt: skip


def test_nested_ops_that_begin_or_end_together_are_told_apart() -> None:
    rank = (
        TraceBuilder()
        .op("aten::outer", 0, 10)
        .op("aten::inner", 0, 10)
        .kernel("kernel", 40, 1, launch=20)
        .load()
        .rank()
    )
    times = dict(compute_self_times(rank).filter(pl.col("name").str.starts_with("aten")).rows())
    assert sorted(times.values()) == [0, 10_000]


def test_nothing_is_nested_in_an_op_of_no_time() -> None:
    """Old traces count whole microseconds, so that short ops take none."""
    builder = TraceBuilder().op("aten::outer", 0, 10).op("aten::none", 3, 0).op("aten::inner", 4, 2)
    rank = builder.kernel("kernel", 40, 1, launch=20).load().rank()
    times = dict(compute_self_times(rank).filter(pl.col("name").str.starts_with("aten")).rows())
    assert times == {"aten::outer": 8000, "aten::none": 0, "aten::inner": 2000}


@pytest.mark.usefixtures("reference")
@given(factor=st.floats(0.2, 5))
def test_a_host_that_takes_longer_for_all_is_slower_by_as_much(factor: float) -> None:
    found = measure_host_speed([record(*[2 * factor] * 12)])
    assert found is not None
    assert found.ops == 12
    assert found.speed == pytest.approx(1 / factor, rel=1e-2)
    assert found.spread == pytest.approx(0, abs=1e-2)


@pytest.mark.usefixtures("reference")
def test_a_few_ops_that_waited_do_not_count() -> None:
    found = measure_host_speed([record(*[4.0] * 10, 4000.0, 4000.0)])
    assert found is not None
    assert found.speed == pytest.approx(0.5)


@pytest.mark.usefixtures("reference")
@pytest.mark.parametrize(
    ("durations_us", "repeats"),
    [([2.0] * 9, 10), ([2.0] * 12, 9), ([2.0, 20.0] * 6, 10)],
    ids=["too few ops", "too few repeats", "ops that disagree"],
)
def test_a_host_that_ops_do_not_tell_is_unknown(durations_us: list[float], repeats: int) -> None:
    assert measure_host_speed([record(*durations_us, repeats=repeats)]) is None


def test_waits_and_allocations_are_no_measure() -> None:
    names = pl.Series(["aten::item", "aten::copy_", "aten::empty", "aten::_fused_adamw_", "aten::addmm"])
    assert names.str.contains(fingerprint.WAITING_NAMES).to_list() == [True] * 4 + [False]


def test_one_machine_is_a_normal_distribution() -> None:
    one = HostMixture((1.0,), (0.5,), (0.2,))
    assert [one.find_quantile(share) for share in (0.05, 0.5, 0.95)] == pytest.approx([0.171, 0.5, 0.829], abs=1e-3)
    assert one.find_quantile(0.95, error=0.15) == pytest.approx(0.5 + 1.645 * 0.25, abs=1e-3)


def test_quantiles_are_those_of_all_machines_by_weight() -> None:
    """Of three quarters at 1 and a quarter at -1, a quarter is below 0, and half below the middle of the upper ones."""
    both = HostMixture((3.0, 1.0), (1.0, -1.0), (0.01, 0.01))
    assert both.mean == pytest.approx(0.5)
    assert both.find_quantile(0.125) == pytest.approx(-1, abs=1e-6)
    assert both.find_quantile(0.625) == pytest.approx(1, abs=1e-6)
    assert both.add_machine(-1.0, 2.0).find_quantile(0.25) == pytest.approx(-1, abs=0.1)


def list_machines(**speeds: float) -> pl.DataFrame:
    """One machine beside each GPU."""
    gpus = [slug.replace("_", "-") for slug in speeds]
    logs = [math.log(speed) for speed in speeds.values()]
    return pl.DataFrame({"gpu": gpus, "log_speed": logs, "spread": [0.0] * len(gpus)})


def test_usual_hosts_are_those_of_the_vendor_and_mostly_of_the_era_and_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = list_machines(h100_sxm=1.0, v100_sxm_32gb=0.5, rtx_2080_ti=0.25, mi300x=2.0)
    monkeypatch.setattr(usual, "load_machines", lambda: machines)
    found = find_usual_host(load_gpu("b200"))
    assert found.machines == 3
    assert found.mixture == HostMixture((1.0, 0.25, 0.0625), (0.0, math.log(0.5), math.log(0.25)), (0.15,) * 3)
    assert find_usual_host(load_gpu("v100-sxm-16gb")).mixture.weights == (0.25, 1.0, 0.25)
    assert find_usual_host(load_gpu("mi355x")).speed == pytest.approx(2)
    assert find_usual_host(load_gpu("arc-b580")).machines == 4


def test_every_gpu_has_a_usual_host_in_its_interval() -> None:
    for slug in list_gpus():
        found = find_usual_host(load_gpu(slug))
        assert 0.2 < found.low < found.speed < found.high < 5


def test_the_shipped_tables_are_of_known_gpus_and_positive() -> None:
    assert fingerprint.load_op_times()["reference_ns"].min() > 0
    assert fingerprint.load_op_times()["name"].is_unique().all()
    machines = usual.load_machines()
    assert set(machines["gpu"]) <= set(list_gpus())
    assert machines["year"].min() >= usual.OLDEST_YEAR
