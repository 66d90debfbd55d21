"""Exchanges of tokens between experts that aren't NCCL's."""

import polars as pl
import pytest

from tracekit.comm import ClusterError, load_cluster, predict
from tracekit.comm.constants import load_constants

EXCHANGES = load_constants().exchanges
KERNEL = "deepep_normal_dispatch"


def exchange(
    name: str | None, cluster: str = "dgx-h100", size_bytes: float = 2**20, ranks: int = 8
) -> dict[str, object]:
    """Predict one all-to-all."""
    row = {"collective": "all_to_all", "bytes": size_bytes, "ranks": ranks, "dtype": "bf16", "exchange": name}
    table = pl.DataFrame([row], schema_overrides={"exchange": pl.String})
    return predict(table, load_cluster(cluster)).row(0, named=True)


def test_an_exchange_takes_its_beginning_and_what_a_rank_sends_to_others():
    costs, hopper = EXCHANGES.costs[KERNEL], EXCHANGES.machines["hopper"]
    base_us, gbps = costs.base_us * hopper.latency["deepep"], costs.gbps * hopper.bandwidth["deepep"]
    found = exchange(KERNEL, size_bytes=8e9)
    assert found["time_us"] == pytest.approx(base_us + 7e9 / gbps / 1e3)
    assert (found["algorithm"], found["high_us"]) == (KERNEL, pytest.approx(found["time_us"] * costs.known))
    assert exchange(KERNEL, size_bytes=0)["time_us"] == pytest.approx(base_us)


def test_an_engine_takes_longer_than_its_kernels_and_nccl_for_few_tokens():
    of = {name: exchange(name)["time_us"] for name in (None, KERNEL, "vllm_normal_dispatch", "trtllm_normal_dispatch")}
    assert of[None] < of[KERNEL] < of["trtllm_normal_dispatch"] < of["vllm_normal_dispatch"]


def test_a_gpu_that_nobody_measured_has_no_factors_and_a_wide_interval():
    found = exchange(KERNEL, "mi300x-platform", size_bytes=0)
    assert found["time_us"] == pytest.approx(EXCHANGES.costs[KERNEL].base_us)
    assert found["high_us"] == pytest.approx(found["time_us"] * EXCHANGES.costs[KERNEL].unseen)
    assert all(costs.unseen >= costs.known > 1 for costs in EXCHANGES.costs.values())


def test_kernels_of_one_machine_are_known_there_alone():
    name = "nvlink_one_sided_dispatch"
    rack, node = exchange(name, "gb200-nvl72", ranks=64), exchange(name)
    costs = EXCHANGES.costs[name]
    assert rack["high_us"] == pytest.approx(rack["time_us"] * costs.known)
    assert node["high_us"] == pytest.approx(node["time_us"] * costs.unseen)
    assert rack["time_us"] == pytest.approx(costs.base_us + 2**20 * 63 / 64 / costs.gbps / 1e3)


def test_between_nodes_and_for_other_collectives_it_is_nccl():
    pod = {"cluster": "4xdgx-h100", "ranks": 32}
    assert exchange(KERNEL, **pod)["time_us"] == exchange(None, **pod)["time_us"]
    assert exchange(KERNEL, ranks=1)["time_us"] == 0
    row = {"collective": "all_reduce", "bytes": 2**20, "ranks": 8, "dtype": "bf16"}
    named, plain = (predict(pl.DataFrame([one]), load_cluster("dgx-h100")) for one in (row | {"exchange": KERNEL}, row))
    assert named["time_us"].item() == plain["time_us"].item()


def test_an_unknown_exchange_is_an_error():
    with pytest.raises(ClusterError, match="Unknown exchange 'pplx'"):
        exchange("pplx")
