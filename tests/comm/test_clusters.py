"""Names and descriptions of clusters."""

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest

from predictors import load_gpu
from tests.codes import has_code
from tracekit.comm import ClusterError, list_clusters, load_cluster
from tracekit.comm.cluster import CLUSTER_FOLDER, load_aliases, load_reference_nodes
from tracekit.comm.constants import CONSTANTS_FILE
from tracekit.comm.testing import check_cluster


@pytest.mark.parametrize("name", list_clusters())
def test_every_cluster_passes_the_battery(name):
    check_cluster(load_cluster(name))


@pytest.mark.parametrize(
    ("name", "gpus", "gpu", "network_gbps"),
    [
        ("8xh100-sxm", 8, "h100-sxm", 0),
        ("4x8xh100-sxm@ndr400", 32, "h100-sxm", 50),
        ("4X8xH100@NDR400", 32, "h100-sxm", 50),
        ("2x8xa100-sxm-80gb@hdr200", 16, "a100-sxm-80gb", 25),
        ("2x4xmi300x@roce-400g", 8, "mi300x", 50),
        ("1x8xrtx-4090", 8, "rtx-4090", 0),
        ("1xl4", 1, "l4", 0),
        ("p5", 8, "h100-sxm", 50),
        ("p5.48xlarge", 8, "h100-sxm", 50),
        ("16xp4d", 128, "a100-sxm-40gb", 6.25),
        ("gb200-nvl72", 72, "gb200", 50),
        ("4xgb200-nvl72", 288, "gb200", 50),
        ("2xnd-h100-v5", 16, "h100-sxm", 50),
        ("a2-mega", 16, "a100-sxm-40gb", 0.78125),
        ("bm.gpu.h100.8", 8, "h100-sxm", 50),
        ("g6e.48xlarge", 8, "l40s", 6.25),
        ("2xgb300-nvl72", 144, "gb300", 100),
    ],
)
def test_names(name, gpus, gpu, network_gbps):
    cluster = load_cluster(name)
    assert (cluster.gpus, cluster.gpu.slug) == (gpus, gpu)
    assert cluster.network_gbps == pytest.approx(network_gbps)


@pytest.mark.parametrize(("gpu", "pair_gbps"), [("mi300x", 64), ("mi325x", 64), ("mi350x", 76.8), ("mi355x", 76.8)])
def test_platforms_of_amd_are_meshes(gpu, pair_gbps):
    node = load_cluster(f"8x{gpu}")
    assert (node.fabric, node.pair_gbps) == ("mesh", pair_gbps)
    assert node.gpu.link_gbps == pytest.approx(7 * pair_gbps)


@pytest.mark.parametrize("name", ["8xh100-sxm", "4x8xh100-sxm@ndr400", "16xp4d", "p5", "2x8xb300@xdr800"])
def test_a_cluster_is_found_again_by_its_slug(name):
    cluster = load_cluster(name)
    assert load_cluster(cluster.slug) == cluster


@pytest.mark.parametrize(
    ("name", "code", "shown"),
    [
        ("p55", "cluster-mistyped", "p5"),
        ("dgx-h10", "cluster-mistyped", "dgx-h100"),
        ("8xh100-smx", "cluster-mistyped", "8xh100-sxm"),
        ("8xa100", "cluster-gpu-ambiguous", "a100-sxm-80gb"),
        ("4xh100-sxm + 4xa100-sxm-80gb@eth100", "cluster-of-unlike-gpus", "each kind by itself"),
        ("", "cluster-unknown", "tracekit clusters"),
        ("8x", None, "tracekit clusters"),
        ("x", None, "tracekit clusters"),
        ("@ndr400", None, "tracekit clusters"),
        ("4x8xh100-sxm", "cluster-without-network", "4x8xh100-sxm@ndr400"),
        ("4x8xh100-sxm@", None, "tracekit clusters"),
        ("4x8xh100-sxm@fast", "cluster-network-unreadable", "roce200"),
        ("4x8xh100-sxm@ndr0", "cluster-network-unreadable", "roce200"),
        ("0xh100-sxm", "cluster-size-invalid", "0 GPUs"),
        ("2xl40s-pcie", "cluster-is-one-node", "l40s"),
        ("99999999x8xh100-sxm@ndr400", "cluster-size-invalid", "799,999,992 GPUs"),
        ("missing.toml", "cluster-file-not-found", "missing.toml"),
    ],
)
def test_a_bad_name_gives_one_line_with_what_to_try(name, code, shown):
    with pytest.raises(ClusterError) as caught:
        load_cluster(name)
    assert caught.value.code in (code or ("cluster-unknown", "cluster-mistyped"))
    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unlike_nodes_share_the_slowest_network():
    found = load_cluster("8xh100-sxm@ndr400 + 2x4xa100-sxm-80gb@eth100", unlike_gpus=True)
    fast, slow = found.kinds
    assert (found.gpus, fast.gpus, slow.gpus) == (16, 8, 8)
    assert [(kind.cluster.nodes, kind.cluster.gpus_per_node) for kind in found.kinds] == [(2, 8), (4, 4)]
    assert [(kind.cluster.network, kind.cluster.network_gbps) for kind in found.kinds] == [("ethernet", 12.5)] * 2
    assert found.slug == "8xh100-sxm@ndr400+2x4xa100-sxm-80gb@eth100"
    assert load_cluster(found.slug, unlike_gpus=True) == found


def test_the_last_network_is_that_of_all_without_one():
    found = load_cluster("4xv100-sxm-32gb+p5+4xa100-sxm-80gb@eth100", unlike_gpus=True)
    assert [kind.gpus for kind in found.kinds] == [4, 8, 4]
    assert {kind.cluster.network_gbps for kind in found.kinds} == {12.5}
    assert found.gpu.slug == "v100-sxm-32gb"  # least memory
    with pytest.raises(ClusterError, match="no network to the others"):
        load_cluster("4xh100-sxm+4xa100-sxm-80gb", unlike_gpus=True)


@pytest.mark.parametrize("name", ["8xH1000", "2x8xH1OO-SXM@ndr400", "8xh100sxmm"])
def test_a_cluster_of_an_unknown_gpu_is_refused_with_one_like_it(name):
    """However it is written: the count in front stays."""
    with pytest.raises(ClusterError, check=lambda error: error.code == "cluster-mistyped") as caught:
        load_cluster(name)
    assert name.lower().split("h1")[0] + "h100" in str(caught.value).lower()


def test_no_two_clusters_share_a_name_or_a_gpu_as_its_platform():
    spelled = [alias for name in list_clusters() for alias in _read(name).get("aliases", [])]
    assert len(set(spelled)) == len(spelled)
    assert not set(spelled) & set(list_clusters())
    assert all(name == name.lower() for name in load_aliases())
    usual = [_read(name)["gpu"] for name in list_clusters() if _read(name).get("reference")]
    assert len(set(usual)) == len(usual) == len(load_reference_nodes())


def test_a_file_of_ones_own(tmp_path: Path):
    path = tmp_path / "lab.toml"
    path.write_text((CLUSTER_FOLDER / "dgx-h100.toml").read_text().replace("nics_per_node = 8", "nics_per_node = 4"))
    assert load_cluster(str(path)).network_gbps == 25
    four = load_cluster(f"4x{path}")
    assert (four.slug, four.nodes, four.gpus) == ("4xlab", 4, 32)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("gpus_per_node = 8", "", "cluster-key-missing"),
        ("gpus_per_node = 8", "gpus_per_node = 0", "cluster-without-nodes"),
        ("gpus_per_node = 8", 'gpus_per_node = "8"', "cluster-value-type"),
        ("nic_gbit = 400", "nic_gbit = -400", "cluster-value-negative"),
        ("nic_gbit = 400", "nic_gbit = nan", "cluster-value-negative"),
        ("nic_gbit = 400", "nic_gbit = 400\noversubscription = 0", "cluster-oversubscription-invalid"),
        ("nic_gbit = 400", "nic_gbit = 400\nnodes = 1000000", "cluster-size-invalid"),
        ('fabric = "nvswitch"', 'fabric = "mesh"', "cluster-pair-gbps-misplaced"),
        ('gpu = "h100-sxm"', 'gpu = "rtx-4090"', "cluster-fabric-without-links"),
        ("nic_gbit = 400", "nic_gbit = 400\nspeed = 1", "cluster-key-unknown"),
        ('network = "ib"', 'network = "none"', "cluster-network-contradictory"),
        ('fabric = "nvswitch"', 'fabric = "magic"', "cluster-value-unknown"),
        ('fabric = "system"', 'fabric = "rumour"', "cluster-source-missing"),
        ("[sources]", "[sources", "cluster-file-not-toml"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, old, new, code):
    text = (CLUSTER_FOLDER / "dgx-h100.toml").read_text()
    assert old in text
    path = tmp_path / "lab.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(ClusterError, check=has_code(code)):
        load_cluster(str(path))


@pytest.mark.parametrize(
    ("node", "gpu", "gbps"), [(4, 4, 31.5), (4, 5, 31.5), (5, 4, 31.5), (5, 5, 63.0), (3, 4, 15.75)]
)
def test_pci_express_is_as_fast_as_its_older_end(node, gpu, gbps):
    """Of 16 lanes at 8, 16 and 32 GT/s with 128b/130b."""
    card = dataclasses.replace(load_gpu("l40s"), pcie_gen=gpu, pcie_lanes=16)
    cluster = dataclasses.replace(load_cluster("8xl40s"), gpu=card, pcie_gen=node)
    assert cluster.pcie_gbps == pytest.approx(gbps, rel=0.01)


def test_collectives_measured_on_one_node_need_no_network(tmp_path: Path):
    text = (CLUSTER_FOLDER / "dgx-h100.toml").read_text()
    head, _, _ = text.partition("[[measured]]")
    for name, value in (("network", '"none"'), ("nics_per_node", "0"), ("nic_gbit", "0")):
        head = re.sub(rf"(?m)^{name} = .*$", f"{name} = {value}", head, count=1)
    one = 'collective = "all_reduce"\nbytes = 1048576\nranks = {}\ntime_us = 40.0\n'
    inside, across = tmp_path / "inside.toml", tmp_path / "across.toml"
    inside.write_text(head + "\n[[measured]]\n" + one.format(8))
    across.write_text(head + "\n[[measured]]\n" + one.format(16))
    assert len(load_cluster(str(inside)).measured) == 1
    with pytest.raises(ClusterError, check=has_code("measured-without-network")):
        load_cluster(str(across))


def test_the_battery_finds_what_is_wrong():
    good = load_cluster("dgx-h100")
    wrong = dataclasses.replace(good, fabric="mesh", nics_per_node=0, pcie_gen=6, sources={})
    with pytest.raises(AssertionError, match=r"pair_gbps.*pcie_gen 6.*gpu has no source"):
        check_cluster(wrong)


def test_the_fitted_constants_stay_small():
    assert CONSTANTS_FILE.stat().st_size < 8192


def _read(name: str) -> dict[str, object]:
    return tomllib.loads((CLUSTER_FOLDER / f"{name}.toml").read_text())


def test_a_plus_in_a_gpus_name_is_part_of_it():
    assert load_cluster("1xRyzen AI Max+ 395").gpu.slug == "radeon-8060s"
