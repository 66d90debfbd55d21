"""The collective model: closed forms, and the order that its times must keep."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors import load_gpu
from tests.codes import has_code
from tracekit.comm import Cluster, ClusterError, load_cluster, predict
from tracekit.comm.collective_calls import BUS_FACTOR, CollectiveCalls
from tracekit.comm.constants import load_constants
from tracekit.comm.law import compute_ring_time
from tracekit.comm.predict import build_links

COLLECTIVES = sorted(BUS_FACTOR)
NODES = ["8xh100-sxm", "8xa100-sxm-80gb", "8xb200", "8xmi300x", "8xl40s", "8xv100-sxm-32gb", "4xh100-nvl"]
NETWORKS = ["ndr400", "hdr200", "roce100", "efa100", "eth10"]
BYTES = st.integers(0, 2**36)


def frame(*rows: tuple[object, ...], names: tuple[str, ...] = ("collective", "bytes", "ranks", "dtype")):
    return pl.DataFrame(rows, schema=list(names), orient="row")


def time_us(cluster: Cluster, collective: str, size: int, ranks: int, dtype: str = "bfloat16") -> float:
    return predict(frame((collective, size, ranks, dtype)), cluster)["time_us"].item()


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("protocol", ["LL", "LL128", "Simple"])
def test_a_ring_all_reduce_is_the_closed_form(ranks, protocol):
    constants, size = load_constants(), 2.0**26
    cluster = load_cluster("8xa100-sxm-80gb")
    n = np.array([float(ranks)])
    calls = CollectiveCalls("all_reduce", np.array([size]), n, np.ones(1), np.array([True]))
    links = build_links(cluster, n, constants)
    price, own = constants.protocols[protocol], constants.own["all_reduce"]
    steps = 2 * (ranks - 1)
    latency_us = links.system.latency * (price.base_us + steps * links.system.hop * price.hop_us) * price.growth**3
    moved = steps / ranks * size + 2 * own * size / ranks
    transfer_us = price.cost * moved / (cluster.gpu.link_gbps * links.system.bandwidth * 1e3)
    expected = latency_us + transfer_us + price.pipeline * np.sqrt(latency_us * transfer_us)
    assert compute_ring_time(calls, links, constants, protocol)[0] == pytest.approx(expected)


def test_a_ring_over_nodes_is_held_up_by_the_network():
    cluster = load_cluster("16x8xa100-sxm-80gb@hdr200")
    size, n = 2**33, 128
    found = predict(frame(("all_reduce", size, n, "bfloat16")), cluster).row(0, named=True)
    efficiency = load_constants().network.efficiency["ib"]
    assert found["algorithm"] in ("ring/Simple", "ring/LL128", "tree/Simple")
    assert 0.9 < found["busbw_gbps"] / (8 * 25 * efficiency) <= 1.01


@pytest.mark.parametrize(
    ("name", "collective", "ranks", "gpus_worth"),
    [
        ("2xdgx-h100", "all_gather", 16, 8),
        ("2xdgx-h100", "all_gather", 12, 4),
        ("2xdgx-h100", "all_gather", 9, 1),
        ("2xp4d", "all_gather", 9, 2),  # an adapter serves two GPUs, of which one is idle
        ("2xp4d", "all_gather", 15, 8),
    ],
)
def test_the_node_with_the_fewest_ranks_holds_up_a_ring(name, collective, ranks, gpus_worth):
    cluster, size = load_cluster(name), 2**36
    found = predict(frame((collective, size, ranks, "half")), cluster, algorithm="ring")["time_us"].item()
    rate = cluster.network_gbps * gpus_worth * load_constants().network.efficiency[cluster.network]
    assert found == pytest.approx(size * (ranks - 1) / ranks / rate / 1e3, rel=0.01)


def test_ranks_that_sit_on_nodes_of_ones_own_choice_sit_evenly():
    cluster, names = load_cluster("2xdgx-h100"), ("collective", "bytes", "ranks", "dtype", "nodes")
    filled, even = predict(
        frame(("all_gather", 2**34, 12, "half", None), ("all_gather", 2**34, 12, "half", 2), names=names), cluster
    )["time_us"]
    assert filled / even == pytest.approx(6 / 4, rel=0.01)


@pytest.mark.parametrize(
    ("name", "ranks", "sent"),
    [
        ("2xdgx-h100", 16, 8 / 16),
        ("2xdgx-h100", 9, 8 / 9),  # the lone rank on the second node sends most of its buffer
        ("3xa2-highgpu", 17, 8 * 9 / 17 / 8),  # the adapter of a full node sends more than that of the lone rank
    ],
)
def test_an_all_to_all_waits_for_the_node_that_sends_longest(name, ranks, sent):
    cluster, size = load_cluster(name), 2**36
    rate = cluster.network_gbps * load_constants().network.efficiency[cluster.network]
    assert time_us(cluster, "all_to_all", size, ranks) == pytest.approx(size * sent / rate / 1e3, rel=0.01)


def test_messages_of_an_all_to_all_fill_no_chain_of_hops():
    """Of two nodes of one GPU, by hand: what two chunks' start would cost a ring isn't added."""
    constants, size = load_constants(), 2**20
    price, network = constants.protocols["direct_Simple"], constants.network
    cluster, one = load_cluster("2x1xa100-sxm-80gb@hdr200"), np.ones(1)
    latency_us = build_links(cluster, one, constants).system.latency * price.base_us + network.ring_us["Simple"]
    transfer_us = size / 2 / (network.efficiency["ib"] * 25e3)
    filling_us = price.pipeline * np.sqrt(latency_us * transfer_us)
    assert time_us(cluster, "all_to_all", size, 2) == pytest.approx(latency_us + transfer_us + filling_us)


@pytest.mark.parametrize("size", [2**16, 2**23])
def test_chunks_over_the_network_grow_until_the_transfer_takes_as_long_as_the_latency(size):
    """Two nodes of one GPU, by hand: a ring's two crossings, and as many bytes each way as the buffer has."""
    constants = load_constants()
    price, network = constants.protocols["Simple"], constants.network
    cluster = load_cluster("2x1xa100-sxm-80gb@hdr200")
    one = np.ones(1)
    calls = CollectiveCalls("all_reduce", one * size, one * 2, one * 2, np.array([True]))
    links = build_links(cluster, one, constants)
    latency_us = links.system.latency * price.base_us * price.growth**3 + 2 * network.ring_us["Simple"]
    transfer_us = size / (network.efficiency["ib"] * 25e3)
    filling_us = 2 * np.sqrt(latency_us * min(transfer_us, latency_us))
    assert (transfer_us > latency_us) == (size == 2**23)
    assert compute_ring_time(calls, links, constants, "Simple")[0] == pytest.approx(
        latency_us + transfer_us + filling_us
    )


def test_a_one_shot_all_reduce_is_the_closed_form():
    constants, size, ranks = load_constants(), 2**16, 4
    cluster = load_cluster("8xa100-sxm-80gb")
    scales, price = constants.systems["a100_sxm"], constants.protocols["one_shot"]
    latency_us = scales.custom * (price.base_us + 3 * price.hop_us)
    read_us = price.cost * 3 * size / (cluster.gpu.link_gbps * scales.bandwidth * 1e3)
    rows = frame(("all_reduce", size, ranks, "bf16")).with_columns(custom=True)
    found = predict(rows, cluster).row(0, named=True)
    assert found["algorithm"] == "one-shot"
    assert found["time_us"] == pytest.approx(latency_us + read_us + price.pipeline * np.sqrt(latency_us * read_us))


@pytest.mark.parametrize("name", NODES)
@settings(deadline=None, max_examples=20)
@given(BYTES, st.integers(2, 8))
def test_all_reduces_of_ones_own_are_never_slower_than_nccl(name, size, ranks):
    rows = frame(("all_reduce", size, min(ranks, load_cluster(name).gpus), "bf16"))
    cluster = load_cluster(name)
    own, nccl = (predict(rows.with_columns(custom=custom), cluster).row(0, named=True) for custom in (True, False))
    assert own["time_us"] <= nccl["time_us"]
    pcie_beyond_two = cluster.fabric == "pcie" and rows["ranks"].item() > 2
    assert own["algorithm"] == nccl["algorithm"] or not pcie_beyond_two


def test_all_reduces_of_ones_own_stay_in_a_node():
    rows = frame(("all_reduce", 8192, 16, "bf16")).with_columns(custom=True)
    cluster = load_cluster("2x8xa100-sxm-80gb@hdr200")
    own, nccl = (predict(rows.with_columns(custom=custom), cluster).drop("custom") for custom in (True, False))
    assert own["time_us"].item() == nccl["time_us"].item()


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_rank_costs_nothing(name, collective):
    found = predict(frame((collective, 2**20, 1, "bfloat16")), load_cluster(name)).row(0, named=True)
    assert found["time_us"] == found["low_us"] == found["high_us"] == 0
    assert found["algorithm"] == "none"
    assert found["busbw_gbps"] is None


@settings(deadline=None)
@given(
    st.sampled_from(NODES), st.sampled_from(COLLECTIVES), st.integers(1, 8), st.integers(1, 9), BYTES, BYTES,
    st.sampled_from(NETWORKS), st.sampled_from(["bfloat16", "int8"]),
)  # fmt: skip
def test_more_bytes_are_never_faster(name, collective, per_node, nodes, one, other, network, dtype):
    gpus, gpu = name.split("x", 1)
    ranks = nodes * min(per_node, int(gpus))
    cluster = load_cluster(f"{nodes}x{gpus}x{gpu}@{network}")
    low, high = sorted((one, other))
    rows = [(collective, size, ranks, dtype, nodes) for size in (low, high)]
    found = predict(frame(*rows, names=("collective", "bytes", "ranks", "dtype", "nodes")), cluster)
    for column in ("time_us", "low_us", "high_us"):
        assert found[column][0] <= found[column][1] * (1 + 1e-9)


@settings(deadline=None)
@given(
    st.sampled_from(NODES), st.sampled_from(COLLECTIVES), st.integers(1, 8), st.integers(1, 40), st.integers(1, 40),
    BYTES, st.sampled_from(NETWORKS), st.sampled_from(["bfloat16", "int8"]),
)  # fmt: skip
def test_more_nodes_are_never_faster(name, collective, per_node, one, other, size, network, dtype):
    gpus, gpu = name.split("x", 1)
    per_node = min(per_node, int(gpus))
    cluster = load_cluster(f"40x{gpus}x{gpu}@{network}")
    rows = [(collective, size, nodes * per_node, dtype, nodes) for nodes in sorted((one, other))]
    found = predict(frame(*rows, names=("collective", "bytes", "ranks", "dtype", "nodes")), cluster)
    assert found["time_us"][0] <= found["time_us"][1] * (1 + 1e-9)


@settings(deadline=None)
@given(st.sampled_from(COLLECTIVES), st.integers(2, 64), st.integers(0, 2**34), st.floats(1.0, 8.0))
def test_a_faster_network_is_never_slower(collective, ranks, size, factor):
    slow = load_cluster("8x8xh100-sxm@ndr200")
    fast = replace(slow, nic_gbit=slow.nic_gbit * factor)
    assert time_us(fast, collective, size, ranks) <= time_us(slow, collective, size, ranks) * (1 + 1e-9)


def test_nvls_only_where_the_switch_can_add():
    def algorithm(cluster: str, ranks: int, dtype: str) -> str:
        return predict(frame(("all_reduce", 2**28, ranks, dtype)), load_cluster(cluster))["algorithm"].item()

    for dtype in ("bfloat16", "torch.bfloat16", "Float", "fp64"):
        assert algorithm("8xh100-sxm", 8, dtype) == "nvls/Simple"
    assert algorithm("2x8xh100-sxm@ndr400", 16, "bfloat16") == "nvls-tree/Simple"
    for cluster, ranks, dtype in (("8xh100-sxm", 8, "int8"), ("8xh100-sxm", 4, "half"), ("8xa100-sxm-80gb", 8, "half")):
        assert algorithm(cluster, ranks, dtype) == "ring/Simple"


def test_small_messages_take_a_protocol_of_low_latency():
    found = predict(frame(*(("all_reduce", 2**power, 8, "half") for power in (10, 22, 28))), load_cluster("dgx-a100"))
    assert found["algorithm"].to_list() == ["ring/LL", "ring/LL128", "ring/Simple"]


def test_nccls_tuner_leaves_ll_where_its_own_lines_meet():
    """Two A100: LL 6.6 + 2 x 0.6 us at 87.7 GB/s, Simple 8.4 + 2 x 3.4 us at 240; LL128 would begin at 17.8 us.

    They meet at 7.4 us / (1 / 87.7 - 1 / 240) = 1,022,682 bytes, where LL takes 21 us still and Simple 46.
    """
    rows = frame(*(("all_reduce", size, 2, "half") for size in (1_022_000, 1_023_000)))
    found = predict(rows, load_cluster("8xa100-sxm-80gb"))
    assert found["algorithm"].to_list() == ["ring/LL", "ring/Simple"]
    before, after = found["time_us"]
    assert after > 1.5 * before


def test_messages_to_one_peer_leave_ll_at_16_kib():
    rows = frame(*(("all_to_all", 8 * part, 8, "half") for part in (16384, 16385)), ("send_recv", 16385, 2, "half"))
    found = predict(rows, load_cluster("8xh100-sxm"))
    assert found["algorithm"].to_list() == ["direct/LL", "direct/Simple", "direct/Simple"]


def test_an_all_to_all_of_two_takes_as_long_as_the_copies():
    """Half of it stays on the GPU, but all of it is copied: two B200 need as long as eight."""
    cluster, size = load_cluster("8xb200"), 2**29
    copies_us = size / (load_constants().bytes_per_clock * cluster.gpu.sms * cluster.gpu.boost_clock_mhz)
    two, eight = (time_us(cluster, "all_to_all", size, ranks) for ranks in (2, 8))
    assert two > copies_us
    assert two == pytest.approx(eight, rel=0.15)


def test_a_larger_launch_takes_longer():
    """A rank's part doubles three times from 1 KiB on; then threads and blocks are all there."""
    constants, cluster = load_constants(), load_cluster("8xa100-sxm-80gb")
    plain = replace(constants, protocols={**constants.protocols, "LL": replace(constants.protocols["LL"], growth=1.0)})
    rows = frame(*(("all_gather", 2 * part, 2, "half") for part in (512, 1024, 2048, 8192, 16384)))
    grown, flat = (predict(rows, cluster, constants=c)["time_us"].to_numpy() for c in (constants, plain))
    growth = constants.protocols["LL"].growth
    assert grown / flat == pytest.approx([1, 1, growth, growth**3, growth**3], rel=5e-3)


def test_pcie_has_no_ll128():
    sizes = [2**power for power in range(8, 30)]
    found = predict(frame(*(("all_reduce", size, 8, "half") for size in sizes)), load_cluster("8xl40s"))
    assert not found["algorithm"].str.contains("LL128").any()


@pytest.mark.parametrize("ranks", [2, 8])
def test_gpus_without_peer_access_exchange_through_the_host(ranks):
    """A GeForce's driver gives none; a file that says so of a patched one is believed."""
    staged = load_cluster("8xrtx-4090")
    assert not staged.peer_access
    assert load_cluster("8xrtx-6000-ada").peer_access
    rows = frame(("all_reduce", 2**28, ranks, "half"))
    times = [predict(rows, one) for one in (staged, replace(staged, peer_access=True))]
    slower = times[0]["time_us"].item() / times[1]["time_us"].item()
    assert slower == pytest.approx((1 if ranks == 2 else 0.43) / 0.32, rel=0.05)
    assert times[0]["high_us"].item() / times[0]["time_us"].item() > 2


def test_bus_bandwidth_is_that_of_nccl_tests():
    found = predict(frame(("all_reduce", 2**28, 8, "half"), ("send_recv", 2**28, 2, "half")), load_cluster("dgx-h100"))
    reduce, send = found.rows(named=True)
    assert reduce["busbw_gbps"] == pytest.approx(2**28 / reduce["time_us"] / 1e3 * 2 * 7 / 8)
    assert send["busbw_gbps"] == pytest.approx(2**28 / send["time_us"] / 1e3)


def test_the_measured_machine_is_told_from_its_sibling_only_by_the_gpu():
    rows = frame(("all_gather", 2**28, 8, "half"))
    h100, h200 = (predict(rows, load_cluster(f"8x{gpu}"))["time_us"].item() for gpu in ("h100-sxm", "h200-sxm"))
    assert h100 == h200


def test_the_interval_is_wider_where_less_is_known():
    def width(cluster: str, ranks: int) -> float:
        row = predict(frame(("all_reduce", 2**24, ranks, "half")), load_cluster(cluster)).row(0, named=True)
        assert row["low_us"] < row["time_us"] < row["high_us"]
        return row["high_us"] / row["time_us"]

    assert width("8xh100-sxm", 8) < width("8xv100-sxm-32gb", 8)
    assert width("8xh100-sxm", 8) < width("2x8xh100-sxm@ndr400", 16)
    assert width("8xl40s", 2) < width("8xl40s", 8)


def test_rows_keep_their_order_and_unknown_ones_have_nulls():
    rows = frame(("all_reduce", 1024, 8, "half"), ("gather", 1024, 8, "half"), ("all_gather", None, 8, "half"),
                 ("all_gather", 1024, 8, None), ("all_reduce", 2048, 2, "half"))  # fmt: skip
    found = predict(rows, load_cluster("dgx-h100"))
    assert found.select(rows.columns).equals(rows)
    assert found["time_us"].is_null().to_list() == [False, True, True, False, False]
    assert found.columns[4:] == ["time_us", "low_us", "high_us", "algorithm", "busbw_gbps"]


def test_a_cluster_may_be_named():
    rows = frame(("all_reduce", 2**20, 16, "half"))
    assert predict(rows, "2xp5").equals(predict(rows, load_cluster("2xp5")))


def test_no_rows_give_no_rows():
    found = predict(frame(("all_reduce", 1, 1, "half")).clear(), load_cluster("dgx-h100"))
    assert found.height == 0
    assert found.schema["time_us"] == pl.Float64


@pytest.mark.parametrize(("ranks", "nodes"), [(9, None), (16, 2), (2, 4)])
def test_what_does_not_fit_is_refused(ranks, nodes):
    rows = frame(("all_reduce", 1024, ranks, "half", nodes), names=("collective", "bytes", "ranks", "dtype", "nodes"))
    with pytest.raises(ClusterError, check=has_code("collective-too-large")):
        predict(rows, load_cluster("dgx-h100"))


@pytest.mark.parametrize(
    ("size", "ranks", "code", "column"),
    [
        (-5, 8, "collective-value-invalid", "bytes"),
        (float("nan"), 8, "collective-value-invalid", "bytes"),
        (1024, 0, "collective-value-invalid", "ranks"),
        (1024, 2.5, "collective-value-invalid", "ranks"),
        ("1 MB", 8, "collective-column-type", "bytes"),
    ],
)
def test_counts_that_none_can_be_say_which(size, ranks, code, column):
    with pytest.raises(ClusterError, match=column, check=has_code(code)):
        predict(frame(("all_reduce", size, ranks, "half")), load_cluster("dgx-h100"))


def test_a_missing_column_is_named():
    with pytest.raises(ClusterError, match="ranks", check=has_code("collective-column-missing")):
        predict(pl.DataFrame({"collective": ["all_reduce"], "bytes": [1], "dtype": ["half"]}), load_cluster("p5"))


def test_constants_are_physical():
    constants = load_constants()
    assert all(0 <= own <= 1 for own in constants.own.values())
    assert all(price.growth >= 1 for price in constants.protocols.values())
    assert all(price.cost >= 1 and price.base_us > 0 for price in constants.protocols.values())
    assert all(0 < part <= 1 for part in constants.network.efficiency.values())
    assert all(width > 1 for width in constants.interval.values())


def test_a_forced_algorithm():
    rows, cluster = frame(("all_reduce", 2**30, 8, "half")), load_cluster("dgx-h100")
    forced = predict(rows, cluster, algorithm="ring")
    assert forced["algorithm"].item() == "ring/Simple"
    assert forced["time_us"].item() > predict(rows, cluster)["time_us"].item()
    assert predict(rows, cluster, algorithm="tree")["time_us"].item() == float("inf")
    gathers = frame(("all_gather", 2**30, 8, "half"), ("all_gather", 2**30, 1, "half"))
    assert predict(gathers, cluster, algorithm="tree")["time_us"].to_list() == [float("inf"), 0.0]
    with pytest.raises(ClusterError, check=has_code("algorithm-unknown")):
        predict(rows, cluster, algorithm="star")


def test_every_gpu_with_links_has_a_node():
    for slug in ("h800-sxm", "b300", "mi250x", "a800-sxm-80gb"):
        cluster = load_cluster(f"8x{slug}")
        assert cluster.gpu == load_gpu(slug)
        assert time_us(cluster, "all_reduce", 2**30, 8) > 0
