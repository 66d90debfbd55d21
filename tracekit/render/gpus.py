"""The GPU data base, drawn."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from predictors import Gpu, Resolution
from tracekit.render.card import card as card_of
from tracekit.render.dump import dump
from tracekit.render.grid import plain

PEAKS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")


def table(known: Sequence[Gpu]) -> RenderableType:
    """One line per GPU: size, memory and dense peaks."""
    columns = plain(gap=1)
    columns.add_column("GPU", style="bold", no_wrap=True)
    for heading in ("year", "SMs", "GB", "GB/s", *PEAKS):
        columns.add_column(heading, justify="right", no_wrap=True)
    for gpu in known:
        columns.add_row(
            gpu.slug,
            str(gpu.year),
            str(gpu.sms),
            f"{gpu.memory_bytes / 2**30:.0f}",
            f"{gpu.bandwidth_gbps:.0f}",
            *(_peak(gpu, dtype) for dtype in PEAKS),
        )
    return Group(
        columns, Text("Dense peaks in TFLOP/s. `tracekit gpus NAME` shows all figures with their sources.", "dim")
    )


def _peak(gpu: Gpu, dtype: str) -> str:
    peak = gpu.peak_flops(dtype)
    return "–" if peak is None else f"{peak / 1e12:.0f}"


def card(found: Resolution) -> RenderableType:
    """All figures of one GPU, each with the number of its source."""
    gpu = found.gpu
    others = f" (there is also {', '.join(found.others)})" if found.others else ""
    figures = [(name, _figure(value), _citation(gpu, name)) for name, value in _figures(gpu).items()]
    return card_of(f"{found.query!r} → {gpu.slug}: {gpu.name}{others}", figures, gpu.sources.values())


def _citation(gpu: Gpu, figure: str) -> str | None:
    """Sources go by the keys of the GPU's file (``memory.l2_mib``), figures by the fields of ``Gpu`` (``l2_bytes``)."""
    if figure in gpu.sources:
        return gpu.sources[figure]
    stem = "size" if figure == "memory_bytes" else figure.removesuffix("_bytes")
    return next((text for key, text in gpu.sources.items() if key.split(".")[1].startswith(stem)), None)


def _figure(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)


def table_json(known: Sequence[Gpu]) -> str:
    """All GPUs."""
    return dump([_facts(gpu) for gpu in known])


def card_json(found: Resolution) -> str:
    """One GPU."""
    return dump(_facts(found.gpu))


def _facts(gpu: Gpu) -> dict[str, Any]:
    """Every field; mappings as plain dictionaries."""
    fields = ((field.name, getattr(gpu, field.name)) for field in dataclasses.fields(gpu))
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in fields}


def _figures(gpu: Gpu) -> dict[str, Any]:
    """Every fact but the sources, mappings spread into ``field.key``."""
    figures: dict[str, Any] = {}
    for name, value in _facts(gpu).items():
        if isinstance(value, dict):
            figures |= {f"{name}.{key}": entry for key, entry in value.items() if name != "sources"}
        elif value is not None:
            figures[name] = ", ".join(value) if isinstance(value, tuple) else value
    return figures
