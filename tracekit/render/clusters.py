"""Render clusters as text and JSON: the list, and one cluster with its sources."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import polars as pl
from rich.console import RenderableType

from tracekit.comm import Cluster, predict
from tracekit.format import format_bytes, format_duration, format_quantity
from tracekit.render.json import dump_json
from tracekit.render.screen import Listing, Screen, render_card


def serialize_clusters(known: list[Cluster]) -> str:
    """Return the list of clusters as JSON."""
    return dump_json([_collect_cluster_facts(cluster) for cluster in known])


def serialize_cluster(cluster: Cluster) -> str:
    """Return one cluster as JSON."""
    return dump_json(_collect_cluster_facts(cluster))


def render_cluster_table(known: list[Cluster]) -> Screen:
    """Render a table with one row per cluster."""
    rows = (
        (
            *(one.slug, one.gpu.slug, one.fabric, one.network, str(one.gpus)),
            f"{one.link_gbps or one.pcie_gbps:.0f}",
            f"{one.network_gbps:.1f}" if one.network_gbps else "–",
        )
        for one in known
    )
    numbers = ("GPUs", "link", "net")
    hint = "GB/s of each GPU in one direction. Names such as 8xh100-sxm, 4x8xh100-sxm@ndr400 and 16xp5 work too."
    return Screen(
        tables=[Listing(("cluster", "GPU", "fabric", "network", *numbers), rows, right=numbers)], notes=[hint]
    )


def render_cluster_card(cluster: Cluster) -> RenderableType:
    """Render all figures of one cluster, each with its source."""
    figures = [
        (key, str(value), cluster.sources.get(key))
        for key, value in _collect_cluster_facts(cluster).items()
        if key not in ("sources", "measured") and value is not None
    ]
    figures += [("measured", line, None) for line in _describe_measurements(cluster)]
    return render_card(f"{cluster.slug}: {cluster.name}", figures, cluster.sources.values())


def _collect_cluster_facts(cluster: Cluster) -> dict[str, Any]:
    named = ("slug", "name", "nodes", "gpus_per_node", "rented_gpus", "fabric", "pair_gbps", "pcie_gen", "network")
    rates = ("nics_per_node", "nic_gbit", "oversubscription", "gpus", "link_gbps", "pcie_gbps", "network_gbps")
    facts = {key: getattr(cluster, key) for key in (*named, *rates)}
    peers = {"peer_access": cluster.peer_access} if cluster.fabric == "pcie" else {}
    measured = {"measured": [asdict(one) for one in cluster.measured]} if cluster.measured else {}
    return {**facts, **peers, "gpu": cluster.gpu.slug, **measured, "sources": dict(cluster.sources)}


def _describe_measurements(cluster: Cluster) -> Iterator[str]:
    """Yield each measured collective of the cluster, next to the time that the model gives without it."""
    for one in cluster.measured:
        calls = pl.DataFrame([asdict(one)], schema_overrides={"nodes": pl.Int64}).drop("time_us")
        model_us = predict(calls, replace(cluster, nodes=one.ranks, measured=()))["time_us"].item()
        what = f"{one.collective} of {format_bytes(one.bytes)} over {format_quantity(one.ranks, 'rank')}"
        yield f"{what}: {format_duration(one.time_us)}, {format_duration(model_us)} as modelled"
