"""Collectives measured on a cluster: predictions keep to them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.codes import has_code
from tests.validation.studies.collectives.published_results import list_sweeps, predict_from_measured
from tracekit.comm import Cluster, ClusterError, load_cluster, predict
from tracekit.comm.cluster import CLUSTER_FOLDER, MeasuredCollective

SIZES = [2**power for power in range(3, 34, 2)]


def rows(ranks: int, collective: str = "all_reduce", sizes: list[int] = SIZES) -> pl.DataFrame:
    return pl.DataFrame({"collective": collective, "bytes": sizes, "ranks": ranks, "dtype": "float"})


def measured(cluster: Cluster, factor: float, calls: pl.DataFrame) -> Cluster:
    """The cluster on which some collectives took so many times as long as the model says."""
    found = predict(calls, cluster)
    names = ("collective", "bytes", "ranks", "time_us")
    return replace(
        cluster,
        measured=tuple(
            MeasuredCollective(kind, size, ranks, factor * us)
            for kind, size, ranks, us in found.select(names).iter_rows()
        ),
    )


def ratios(one: Cluster, other: Cluster, calls: pl.DataFrame) -> np.ndarray:
    return (predict(calls, one)["time_us"] / predict(calls, other)["time_us"]).to_numpy()


def widths(cluster: Cluster, calls: pl.DataFrame) -> np.ndarray:
    found = predict(calls, cluster)
    return (found["high_us"] / found["time_us"]).to_numpy()


@pytest.mark.parametrize("name", ["8xh100-sxm", "4x8xv100-sxm-32gb@edr100", "8xrtx-4090", "8xmi300x"])
def test_what_is_measured_as_modelled_changes_nothing(name):
    cluster = load_cluster(name)
    calls = rows(cluster.gpus)
    assert ratios(measured(cluster, 1.0, calls[::5]), cluster, calls) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("name", ["8xh100-sxm", "4x8xh100-sxm@ndr400", "2xp4de", "8xl40s", "8xmi300x"])
@pytest.mark.parametrize("factor", [0.6, 1.7, 3.0])
def test_a_measured_collective_takes_what_was_measured(name, factor):
    cluster = load_cluster(name)
    calls = rows(cluster.gpus, sizes=[2**10, 2**22, 2**32])
    assert ratios(measured(cluster, factor, calls), cluster, calls) == pytest.approx(factor, rel=0.2)
    assert ratios(measured(cluster, factor, calls[2:]), cluster, calls[2:]) == pytest.approx(factor, rel=0.1)


def test_a_network_at_half_its_rate_holds_up_more_nodes_too_and_no_single_one():
    four = load_cluster("4x8xh100-sxm@ndr400")
    slow = measured(four, 2.0, rows(32, sizes=[2**33]))
    assert ratios(replace(slow, nodes=16), replace(four, nodes=16), rows(128, sizes=[2**33]))[0] > 1.6
    assert ratios(slow, four, rows(8)) == pytest.approx(1.0, abs=0.1)


def test_a_collective_on_one_node_says_nothing_of_the_network():
    cluster = load_cluster("4x8xh100-sxm@ndr400")
    known = measured(cluster, 1.0, rows(8, sizes=[2**10, 2**29]))
    assert widths(known, rows(32)) == pytest.approx(widths(cluster, rows(32)))
    unseen = load_cluster("8xv100-sxm-32gb")
    assert (widths(measured(unseen, 1.0, rows(8, sizes=[2**10, 2**29])), rows(8)) < 0.9 * widths(unseen, rows(8))).all()


@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all", "broadcast", "send_recv"])
def test_no_interval_is_wider_for_a_measurement(collective):
    cluster = load_cluster("2xp5")
    known = measured(cluster, 1.3, rows(16, sizes=[2**20]))
    assert (widths(known, rows(16, collective)) <= widths(cluster, rows(16, collective)) + 1e-9).all()


def test_one_rank_takes_no_time_and_what_cannot_run_all_of_it():
    known = measured(load_cluster("8xh100-sxm"), 1.5, rows(8, sizes=[2**20]))
    assert predict(rows(1), known).select("time_us", "low_us", "high_us").unique().rows() == [(0.0, 0.0, 0.0)]
    assert (predict(rows(8), known, algorithm="tree")["time_us"] == np.inf).all()


def test_of_published_sweeps_two_results_tell_the_others():
    found = pl.concat([predict_from_measured(part, [0, -1]) for part in list_sweeps()])
    assert found.height >= 30
    assert found["error"].abs().median() < 0.7 * found["before"].abs().median()
    assert found["inside"].mean() >= 0.85


def lab(folder: Path, entry: str) -> str:
    path = folder / "lab.toml"
    path.write_text((CLUSTER_FOLDER / "dgx-h100.toml").read_text() + "\n[[measured]]\n" + entry)
    return str(path)


def test_a_file_gives_them_by_time_or_by_bus_bandwidth(tmp_path):
    time = 'collective = "all_reduce"\nbytes = 1_000_000_000\nranks = 8\ntime_us = 5000'
    (by_time,) = load_cluster(lab(tmp_path, time)).measured
    assert by_time == MeasuredCollective("all_reduce", 10**9, 8, 5000.0)
    (tmp_path / "other").mkdir()
    rate = time.replace("time_us = 5000", "busbw_gbps = 350\nnodes = 2")
    (by_rate,) = load_cluster(lab(tmp_path / "other", rate)).measured
    assert by_rate.time_us == pytest.approx(5000)
    assert by_rate.nodes == 2


GOOD = 'collective = "all_reduce"\nbytes = 1024\nranks = 8\ntime_us = 20'


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("bytes = 1024", "", "measured-incomplete"),
        ("time_us = 20", "", "measured-incomplete"),
        ("time_us = 20", "time_us = 20\nbusbw_gbps = 3", "measured-incomplete"),
        ("time_us = 20", "time_us = 0", "measured-value-invalid"),
        ("time_us = 20", "time_us = nan", "measured-value-invalid"),
        ("time_us = 20", 'time_us = "20"', "measured-value-invalid"),
        ("ranks = 8", "ranks = 1", "measured-value-invalid"),
        ("ranks = 8", "ranks = true", "measured-value-invalid"),
        ("ranks = 8", "ranks = 8\nnodes = 9", "measured-nodes-impossible"),
        ("ranks = 8", "ranks = 16\nnodes = 1", "measured-nodes-impossible"),
        ("all_reduce", "all_reduced", "measured-collective-unknown"),
        ("ranks", "gpus", "measured-key-unknown"),
    ],
)
def test_a_wrong_entry_says_what_is_wrong(tmp_path, old, new, code):
    assert old in GOOD
    with pytest.raises(ClusterError, check=has_code(code)):
        load_cluster(lab(tmp_path, GOOD.replace(old, new)))


def test_nodes_need_a_network(tmp_path):
    path = tmp_path / "lab.toml"
    one = (CLUSTER_FOLDER / "dgx-h100.toml").read_text().replace('"ib"', '"none"')
    one = one.replace("nics_per_node = 8", "nics_per_node = 0").replace("nic_gbit = 400", "nic_gbit = 0")
    path.write_text(one + "\n[[measured]]\n" + GOOD.replace("ranks = 8", "ranks = 16"))
    with pytest.raises(ClusterError, check=has_code("measured-without-network")):
        load_cluster(str(path))
