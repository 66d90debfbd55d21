"""Screens and JSON of what tracekit knows of GPUs, clusters, hosts and their calibrations."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import RenderableType
from rich.text import Text

from predictors import Gpu, Resolution
from tracekit.calibration import Calibration
from tracekit.comm import Cluster, predict
from tracekit.format import format_bytes, format_duration, format_quantity
from tracekit.hosts.bench import HostBench
from tracekit.hosts.usual import KnownHost
from tracekit.render.json import dump_document, dump_json
from tracekit.render.screen import Listing, Screen, render_card

PEAK_DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")


def render_gpu_table(known: Sequence[Gpu]) -> Screen:
    """Render a table with one row per GPU or CPU: size, memory and dense peaks."""
    numbers = ("year", "SMs", "GB", "GB/s", *PEAK_DTYPES)
    rows = (
        (
            gpu.slug,
            str(gpu.year),
            str(gpu.sms),
            f"{gpu.memory_bytes / 2**30:.0f}",
            f"{gpu.bandwidth_gbps:.0f}",
            *(_format_peak(gpu, dtype) for dtype in PEAK_DTYPES),
        )
        for gpu in known
    )
    said = "Dense peaks in TFLOP/s; SMs are a CPU's cores. `tracekit gpus NAME` shows all figures with their sources."
    return Screen(tables=[Listing(("GPU", *numbers), rows, right=numbers)], notes=[said])


def _format_peak(gpu: Gpu, dtype: str) -> str:
    peak = gpu.peak_flops(dtype)
    return "–" if peak is None else f"{peak / 1e12:.0f}"


def render_gpu_card(found: Resolution) -> RenderableType:
    """Render all figures of one GPU, each with the number of its source."""
    gpu = found.gpu
    others = f" (there is also {', '.join(found.others)})" if found.others else ""
    figures = [(name, _format_figure(value), _find_source(gpu, name)) for name, value in _flatten_figures(gpu).items()]
    return render_card(f"{found.query!r} → {gpu.slug}: {gpu.name}{others}", figures, gpu.sources.values())


def _find_source(gpu: Gpu, figure: str) -> str | None:
    """Find the source of a figure.

    Sources are keyed as in the GPU's file (``memory.l2_mib``), figures by the fields of ``Gpu`` (``l2_bytes``).
    """
    if figure in gpu.sources:
        return gpu.sources[figure]
    stem = "size" if figure == "memory_bytes" else figure.removesuffix("_bytes")
    return next((text for key, text in gpu.sources.items() if key.split(".")[1].startswith(stem)), None)


def _format_figure(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)


def serialize_gpus(known: Sequence[Gpu]) -> str:
    """Return all GPUs as JSON."""
    return dump_json([_collect_fields(gpu) for gpu in known])


def serialize_gpu(found: Resolution) -> str:
    """Return one GPU as JSON."""
    return dump_json(_collect_fields(found.gpu))


def _collect_fields(gpu: Gpu) -> dict[str, Any]:
    """Return every field; mappings as plain dictionaries."""
    fields = ((field.name, getattr(gpu, field.name)) for field in dataclasses.fields(gpu))
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in fields}


def _flatten_figures(gpu: Gpu) -> dict[str, Any]:
    """Return every field except the sources, with mappings flattened into ``field.key``."""
    figures: dict[str, Any] = {}
    for name, value in _collect_fields(gpu).items():
        if isinstance(value, dict):
            figures |= {f"{name}.{key}": entry for key, entry in value.items() if name != "sources"}
        elif value is not None:
            figures[name] = ", ".join(value) if isinstance(value, tuple) else value
    return figures


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


def serialize_hosts(known: Sequence[KnownHost]) -> str:
    """Return the list of hosts as JSON."""
    return dump_json(known)


def render_host_table(known: Sequence[KnownHost]) -> Screen:
    """Render a table with one row per host."""
    rows = ((one.slug, f"{one.speed:.2f}", one.gpu, str(one.jobs), str(one.year)) for one in known)
    hint = (
        "Speed: of PyTorch's ops and launches, as traces recorded there show it; PyTorch's version and the profiler's "
        "options are part of it, most of all before 2022. --host takes a name or a speed."
    )
    headings = ("host", "speed", "beside", "traces", "year")
    return Screen(tables=[Listing(headings, rows, right=("speed", "traces", "year"))], notes=[hint])


def serialize_bench(bench: HostBench) -> str:
    """Return the bench of this machine's host as JSON."""
    return dump_json(bench)


def render_bench(bench: HostBench) -> Screen:
    """Render the bench of this machine's host, and what it is good for."""
    found = f"{bench.steps_per_s:,.0f} tiny training steps a second, within {bench.spread_pct:.1f} %"
    hint = (
        "Run this on the trace's machine and on the other one, with the same PyTorch: --host-speed takes the ratio of "
        "the other one's steps to the trace's."
    )
    return Screen(tables=[Text(f"{found} (PyTorch {bench.torch}, Python {bench.python})")], notes=[hint])


def serialize_calibrations(kept: Sequence[Calibration]) -> str:
    """Return the stored calibrations as JSON."""
    return dump_document({"calibrations": [_collect_calibration_facts(one) for one in kept]})


def serialize_new_calibration(one: Calibration, errors: pl.DataFrame, path: Path) -> str:
    """Return a new calibration as JSON."""
    return dump_document({**_collect_calibration_facts(one), "file": str(path), "errors_pct": errors.to_dicts()})


def render_calibration_table(kept: Sequence[Calibration]) -> Screen:
    """Render a table with one row per calibration."""
    if not kept:
        return Screen(tables=[Text("No GPU is calibrated. `tracekit calibrate --help` says how.")])
    rows = (
        (one.gpu, one.origin, one.date, one.software, ", ".join(one.families), str(one.kernels.height)) for one in kept
    )
    headings = ("GPU", "from", "date", "software", "families", "kernels")
    return Screen(tables=[Listing(headings, rows, right=("kernels",))])


def render_new_calibration(one: Calibration, errors: pl.DataFrame, path: Path) -> Screen:
    """Render the errors of the measured kernels without the calibration and in cross-validation with it."""
    numbers = ("measured", "error before", "error now")
    rows = (
        (
            law,
            str(number),
            f"{before:.1f} %",
            "–" if after is None else f"{after:.1f} %",
            "" if sharpens else "left out",
        )
        for law, number, before, after, sharpens in errors.iter_rows()
    )
    hint = (
        "Median |error| of the measured kernels: as predicted without any of them, and each fifth of them as predicted "
        "with the others; where that is worse, they are left out. The rest is used in every prediction for this GPU; "
        "--no-calibration leaves it out."
    )
    table = Listing(("kernels of", *numbers, ""), rows, right=numbers)
    return Screen(f"kept: {one.label}", tables=[table], notes=[hint, str(path)])


def _collect_calibration_facts(one: Calibration) -> dict[str, Any]:
    facts = {name: getattr(one, name) for name in ("gpu", "origin", "date", "software")}
    return facts | {"families": list(one.families), "kernels": one.kernels.height}
