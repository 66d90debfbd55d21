"""Render the GPU database as text and JSON."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from predictors import Gpu, Resolution
from tracekit.render.json import dump_json
from tracekit.render.screen import Listing, Screen, render_card

PEAK_DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")


def render_gpu_table(known: Sequence[Gpu]) -> Screen:
    """Render a table with one row per GPU: size, memory and dense peaks."""
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
    said = "Dense peaks in TFLOP/s. `tracekit gpus NAME` shows all figures with their sources."
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
