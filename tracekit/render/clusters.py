"""Clusters for people and machines: the list, and one cluster with its sources."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.comm import Cluster, predict
from tracekit.render.card import card as card_of
from tracekit.render.dump import dump
from tracekit.render.grid import plain
from tracekit.units import byte_count, duration, many


def table_json(known: list[Cluster]) -> str:
    """The list as JSON."""
    return dump([_facts(cluster) for cluster in known])


def card_json(cluster: Cluster) -> str:
    """One cluster as JSON."""
    return dump(_facts(cluster))


def table(known: list[Cluster]) -> RenderableType:
    """One line for each cluster."""
    columns = plain(gap=1)
    columns.add_column("cluster", style="bold", no_wrap=True)
    for heading in ("GPU", "fabric", "network"):
        columns.add_column(heading, no_wrap=True)
    for heading in ("GPUs", "link", "net"):
        columns.add_column(heading, justify="right", no_wrap=True)
    for one in known:
        link = f"{one.link_gbps or one.pcie_gbps:.0f}"
        network = f"{one.network_gbps:.1f}" if one.network_gbps else "–"
        columns.add_row(one.slug, one.gpu.slug, one.fabric, one.network, str(one.gpus), link, network)
    hint = "GB/s of each GPU in one direction. Names such as 8xh100-sxm, 4x8xh100-sxm@ndr400 and 16xp5 work too."
    return Group(columns, Text(hint, "dim"))


def card(cluster: Cluster) -> RenderableType:
    """All figures of one cluster, each with its source."""
    figures = [
        (key, str(value), cluster.sources.get(key))
        for key, value in _facts(cluster).items()
        if key not in ("sources", "measured") and value is not None
    ]
    figures += [("measured", line, None) for line in _measured(cluster)]
    return card_of(f"{cluster.slug}: {cluster.name}", figures, cluster.sources.values())


def _facts(cluster: Cluster) -> dict[str, Any]:
    named = ("slug", "name", "nodes", "gpus_per_node", "fabric", "pair_gbps", "pcie_gen", "network")
    rates = ("nics_per_node", "nic_gbit", "oversubscription", "gpus", "link_gbps", "pcie_gbps", "network_gbps")
    facts = {key: getattr(cluster, key) for key in (*named, *rates)}
    peers = {"peer_access": cluster.peer_access} if cluster.fabric == "pcie" else {}
    measured = {"measured": [asdict(one) for one in cluster.measured]} if cluster.measured else {}
    return {**facts, **peers, "gpu": cluster.gpu.slug, **measured, "sources": dict(cluster.sources)}


def _measured(cluster: Cluster) -> Iterator[str]:
    """What was measured there, beside what would be predicted without."""
    for one in cluster.measured:
        calls = pl.DataFrame([asdict(one)], schema_overrides={"nodes": pl.Int64}).drop("time_us")
        model_us = predict(calls, replace(cluster, nodes=one.ranks, measured=()))["time_us"].item()
        what = f"{one.collective} of {byte_count(one.bytes)} over {many(one.ranks, 'rank')}"
        yield f"{what}: {duration(one.time_us)}, {duration(model_us)} as modelled"
