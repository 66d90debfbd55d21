"""Time, interval and algorithm of collectives on clusters of each kind; `pytest --update-golden` accepts a change."""

from collections.abc import Iterator
from itertools import chain, product

import polars as pl
import pytest

from tests.levels import Row, check_levels, round_level
from tracekit.comm import load_cluster, predict
from tracekit.comm.collective_calls import BUS_FACTOR
from tracekit.comm.constants import load_constants

CLUSTERS = {
    "dgx-h100": (2, 3, 8),
    "8xa100-sxm-80gb": (2, 5, 8),
    "8xb200": (4, 8),
    "4xh100-nvl": (2, 4),
    "8xmi300x": (2, 8),
    "8xv100-sxm-32gb": (4, 8),
    "l40s-pcie": (2, 4),
    "rtx-4090-pcie": (2, 4),
    "4xdgx-h100": (9, 16, 32),
    "2x1xa100-sxm-80gb@hdr200": (2,),
    "16x8xa100-sxm-80gb@hdr200": (128,),
    "4x2xl40s@eth10": (8,),
    "2xp4d": (9, 16),
}
SIZES = (1, 2**16, 2**24, 2**32)


def list_calls(ranks: tuple[int, ...]) -> pl.DataFrame:
    """All kinds and sizes in 16 bit, and all-reduces of other types, or of an engine's own kernels."""
    plain = [(kind, size, n, "bfloat16", False) for kind, size, n in product(sorted(BUS_FACTOR), SIZES, ranks)]
    odd = [
        ("all_reduce", size, n, dtype, custom)
        for size, n in product(SIZES, ranks)
        for dtype, custom in ((None, False), ("int64", False), ("torch.float16", True))
    ]
    return pl.DataFrame([*plain, *odd], schema=["collective", "bytes", "ranks", "dtype", "custom"], orient="row")


def compute_levels(cluster: str) -> Iterator[tuple[str, Row]]:
    calls = list_calls(CLUSTERS[cluster])
    levels = predict(calls, load_cluster(cluster)).select("time_us", "low_us", "high_us", "algorithm")
    for (kind, size, n, dtype, custom), row in zip(calls.rows(), levels.iter_rows(named=True), strict=True):
        rounded = {name: value if isinstance(value, str) else round_level(value) for name, value in row.items()}
        yield f"{kind} {size} {n} {dtype}{' own' * custom} on {cluster}", rounded


def test_times_and_intervals_stay_within_a_percent(request):
    check_levels("collectives", dict(chain(*map(compute_levels, CLUSTERS))), request)


@pytest.mark.parametrize("kind", sorted(BUS_FACTOR))
@pytest.mark.parametrize("cluster", ["dgx-h100", "l40s-pcie", "2x1xa100-sxm-80gb@hdr200"])
def test_one_rank_has_nothing_to_wait_for(kind, cluster):
    found = predict(
        pl.DataFrame({"collective": [kind], "bytes": [2**30], "ranks": [1], "dtype": ["half"]}), load_cluster(cluster)
    )
    assert found.select("time_us", "low_us", "high_us", "algorithm", "busbw_gbps").row(0) == (0, 0, 0, "none", None)


def test_an_engines_own_all_reduce_is_no_other_collective():
    calls = pl.DataFrame({"collective": ["all_gather"], "bytes": [2**14], "ranks": [8], "dtype": ["half"]})
    own = calls.with_columns(custom=True)
    assert predict(own, load_cluster("dgx-h100"))["algorithm"].item().startswith("ring/")


def test_no_dtype_may_be_one_that_the_switch_adds():
    sizes = {"collective": ["all_reduce"] * 3, "bytes": [2**30] * 3, "ranks": [8] * 3}
    found = predict(pl.DataFrame(sizes | {"dtype": [None, "half", "int64"]}), load_cluster("dgx-h100"))
    assert found["algorithm"].to_list() == ["nvls/Simple", "nvls/Simple", "ring/Simple"]
    assert found["time_us"][0] == found["time_us"][1]


@pytest.mark.parametrize(
    ("cluster", "kind", "ranks", "width"),
    [
        ("8xa100-sxm-80gb", "all_reduce", 8, "known"),
        ("8xa100-sxm-80gb", "broadcast", 8, "unseen"),
        ("8xb200", "all_reduce", 8, "known"),
        ("8xmi300x", "all_reduce", 8, "rccl"),
        ("8xl40s", "all_reduce", 2, "pcie"),
        ("8xl40s", "all_reduce", 4, "pcie_beyond_two"),
        ("8xrtx-4090", "all_reduce", 2, "staged"),
        ("8xrtx-4090", "all_reduce", 4, "pcie_beyond_two"),
    ],
)
def test_an_interval_is_as_wide_as_what_was_measured_of_such_links(cluster, kind, ranks, width):
    calls = pl.DataFrame({"collective": [kind], "bytes": [2**20], "ranks": [ranks], "dtype": ["half"]})
    found = predict(calls, load_cluster(cluster)).row(0, named=True)
    factor = load_constants().interval[width]
    assert found["high_us"] / found["time_us"] == pytest.approx(factor)
    assert found["time_us"] / found["low_us"] == pytest.approx(factor)


@pytest.mark.parametrize(("size", "part"), [(2**10, 0), (2**20, 0), (2**23, 0.5), (2**26, 1), (2**34, 1)])
def test_between_nodes_short_messages_are_known_least(size, part):
    """The wider of what is known inside a node and of the network, between which it moves from 1 to 64 MiB."""
    calls = pl.DataFrame({"collective": ["all_reduce"], "bytes": [size], "ranks": [32], "dtype": ["half"]})
    found = predict(calls, load_cluster("4x8xa100-sxm-80gb@hdr200")).row(0, named=True)
    interval = load_constants().interval
    factor = interval["network_short"] ** (1 - part) * interval["network"] ** part
    assert found["high_us"] / found["time_us"] == pytest.approx(max(factor, interval["known"]))
