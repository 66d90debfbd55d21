"""Render the report as JSON, and encode that of all commands. Times in microseconds, shares in percent."""

import json
from dataclasses import replace
from typing import Any

from tracekit.escape import to_json
from tracekit.parallelism.layout import Layout
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.note_order import compute_effect_us
from tracekit.reporting.findings.context import Finding
from tracekit.reporting.model import Report, TraceInfo
from tracekit.reporting.plain import to_builtins
from tracekit.reporting.saved_prediction import to_saved_kernels
from tracekit.reporting.sections.limits import SpeedSensitivity
from tracekit.reporting.step_row import StepRow
from tracekit.reporting.tables import STEP

MAX_PREDICTED_KERNELS = 2000
SCHEMA_VERSION = 1


def dump_document(body: dict[str, Any]) -> str:
    """Return a versioned JSON document: its first key is the schema version. Values as for :func:`dump_json`."""
    return dump_json({"schema_version": SCHEMA_VERSION, **body})


def dump_json(data: Any) -> str:
    """Return indented JSON with a final line break; NaN and infinity are refused, as JSON has neither.

    Args:
        data: What :func:`~tracekit.reporting.plain.to_builtins` takes: data classes, messages and frames, too.
    """
    return to_json(json.dumps(to_builtins(data), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def dump_info(info: TraceInfo, graph: dict[str, Any] | None = None) -> str:
    """Return the JSON that ``tracekit info --json`` prints.

    Args:
        info: What the trace holds.
        graph: The graph check that ``-v`` adds, here as in the functions below; ``None`` without ``-v``.
    """
    return _dump(_select(info, "source", "replay", "events", "coverage", "modules", "over_bound", "warnings"), graph)


def dump_measured(report: Report, top: int, graph: dict[str, Any] | None = None) -> str:
    """Return the JSON that ``tracekit report --json`` prints, with the ``top`` kernels by time."""
    head = _select(
        report,
        "source",
        "replay",
        "events",
        "serving",
        "breakdown",
        "phases",
        "modules",
        "parts",
        "peak_use",
        "peak_slices",
        "idle",
    )
    body = {
        "streams": [to_builtins(row) | {"causes": dict(row.causes)} for row in report.streams],
        **_select(report, "ranks", "communication", "copies", "steps", "course", "accuracy"),
        "kernels": report.kernels[:top],
        "kernels_omitted": max(len(report.kernels) - top, 0),
        "critical_path": report.critical,
        "sensitivity": _describe_speeds(report.speeds),
        "what_if": report.what_if,
        "findings": list(map(_describe_finding, report.findings)),
        "warnings": report.warnings,
    }
    return _dump(head | body, graph)


def dump_prediction(report: Report, top: int = MAX_PREDICTED_KERNELS, graph: dict[str, Any] | None = None) -> str:
    """Return the JSON that ``tracekit predict --json`` prints and ``tracekit compare`` reads.

    Only the ``top`` kernels by time are listed with all fields.
    """
    targets = zip(report.targets, report.bars[1:], strict=True)
    body = {
        "decision": report.decision,
        "targets": [describe_target(target) | {"time": dict(bar.parts)} for target, bar in targets],
        **_select(report, "serving", "refused", "peak_use", "peak_slices"),
        "kernels": report.kernels[:top],
        "kernels_omitted": max(len(report.kernels) - top, 0),
        "other_kernels": to_saved_kernels(report.kernels[top:]),
        **_select(report, "what_if", "warnings"),
    }
    return _dump(_select(report, "source", "replay", "events") | body, graph)


def _select(report: TraceInfo, *sections: str) -> dict[str, Any]:
    return {section: getattr(report, section) for section in sections}


def _dump(body: dict[str, Any], graph: dict[str, Any] | None) -> str:
    return dump_document(body if graph is None else body | {"graph": graph})


def _describe_speeds(speeds: SpeedSensitivity) -> dict[str, Any]:
    """Return step times by speed; null is an infinite speed."""
    points = [{"gpu_speed": gpu, "host_speed": host, "step_time_us": us} for gpu, host, us in speeds.points]
    network = [{"network_speed": speed, "step_time_us": us} for speed, us in speeds.network]
    return to_builtins(speeds) | {"points": points, "network": network}  # type: ignore[no-any-return]


def _describe_finding(finding: Finding) -> dict[str, Any]:
    own = {name: value for name, value in to_builtins(finding).items() if name != "message"}
    return finding.message.to_dict() | {"title": finding.title, "advice": finding.advice} | own


def describe_target(prediction: PredictedStep) -> dict[str, Any]:
    """Return a prediction as JSON has it."""
    step_us, row = prediction.step.step_time_us, StepRow(prediction)
    told = {name: getattr(row, name) for name in STEP.columns if name not in SAID_IN_PARTS} | {
        "gpu": prediction.gpu,
        "cluster": prediction.cluster,
        "layout": describe_layout(prediction.layout),
        "pipeline": prediction.pipeline,
        **({"kinds": prediction.kinds} if prediction.kinds else {}),
        "waiting_us": prediction.step.waiting_us,
        "with_contention": prediction.contention,
        "with_same_host": prediction.same_host,
        **{name: getattr(prediction, name) for name in ("coverage", "batch", "energy", "forecast", "experience")},
        "notes": [note.to_dict() | {"effect_us": compute_effect_us(note, step_us)} for note in prediction.notes],
    }
    return {key: told[key] for key in dict.fromkeys((*TARGET_KEYS, *told))}


TARGET_KEYS = (
    *("gpu", "cluster", "layout", "pipeline", "step_time_us", "low_us", "high_us", "speedup", "speedup_per_sample"),
    *("kernel_time_us", "exposed_comm_us", "waiting_us", "idle_us"),
    *("with_contention", "with_same_host", "coverage", "fits_in_memory"),
    *("dollars_per_1000_steps", "dollars_per_1000_traced_steps", "batch", "per_second", "dollars_per_million"),
    *("tpot_ms", "ttft_ms", "tokens_per_s"),
    *("energy", "joules_per_unit", "forecast", "experience", "notes"),
)
"""Keys of a target that come first, in order."""
SAID_IN_PARTS = frozenset(
    {"gpu", "origin", "modelled_pct", "scaled_pct", "unknown_pct", "inferred_pct", "samples", "unit"}
    | {"energy_j", "energy_low_j", "energy_high_j", "power_w"}
)
"""Figures of a step that JSON has under other keys: ``coverage``, ``batch``, ``energy``."""


OPTIONAL_SPLITS = (
    "cp",
    "cp_ring",
    "sequence_parallel",
    "gradient_compression",
    "sync_every",
    "sync_within",
    "balance",
)
"""Fields of a layout that JSON has only where they are used."""


def describe_layout(of: Layout | None) -> dict[str, Any] | None:
    """Return a job's layout as JSON has it; ``None`` where it isn't known."""
    if of is None:
        return None
    described = {"world_size": of.world_size, **to_builtins(replace(of, tables=None))}
    sharded = {"plan": of.plan, "tables": of.tables.summarise()} if of.tables else {}
    dropped = {"plan", "tables"} | {name for name in OPTIONAL_SPLITS if getattr(of, name) == getattr(Layout(), name)}
    return {name: value for name, value in described.items() if name not in dropped} | sharded
