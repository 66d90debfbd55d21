"""JSON: the same figures for machines. Times in microseconds, shares in percent."""

import dataclasses
from math import isfinite
from typing import Any

from tracekit.prediction import Layout, Prediction
from tracekit.render.dump import document
from tracekit.reporting import predicted as saved
from tracekit.reporting.model import Report
from tracekit.reporting.sections.sensitivity import Speeds

PREDICTED_KERNELS = 2000


def info(report: Report, graph: dict[str, Any] | None = None) -> str:
    """What ``tracekit info --json`` prints; ``graph`` is what ``-v`` adds, here as below."""
    body = {
        "coverage": dataclasses.asdict(report.coverage),
        "modules": [dataclasses.asdict(row) for row in report.modules],
        "over_bound": [dataclasses.asdict(row) for row in report.over_bound],
        "warnings": report.warnings,
    }
    return document(_head(report) | body | _graph(graph))


def measured(report: Report, top: int, graph: dict[str, Any] | None = None) -> str:
    """What ``tracekit report --json`` prints: the ``top`` kernels by time."""
    body = {
        "breakdown": [dataclasses.asdict(row) for row in report.breakdown],
        "phases": [dataclasses.asdict(row) for row in report.phases],
        "modules": [dataclasses.asdict(row) for row in report.modules],
        "idle": [dataclasses.asdict(row) for row in report.idle],
        "streams": [dataclasses.asdict(row) | {"causes": dict(row.causes)} for row in report.streams],
        "ranks": [dataclasses.asdict(row) for row in report.ranks],
        "kernels": [dataclasses.asdict(row) for row in report.kernels[:top]],
        "kernels_omitted": max(len(report.kernels) - top, 0),
        "critical_path": dataclasses.asdict(report.critical),
        "sensitivity": _speeds(report.speeds),
        "what_if": [dataclasses.asdict(row) for row in report.what_if],
        "findings": [dataclasses.asdict(row) for row in report.findings],
        "warnings": report.warnings,
    }
    return document(_head(report) | body | _graph(graph))


def predicted(report: Report, top: int = PREDICTED_KERNELS, graph: dict[str, Any] | None = None) -> str:
    """What ``tracekit predict --json`` prints, and ``tracekit compare`` reads: ``top`` kernels at length."""
    targets = zip(report.targets, report.bars[1:], strict=True)
    body = {
        "targets": [_target(target) | {"time": dict(bar.parts)} for target, bar in targets],
        "refused": [
            {"target": one.label, "reason": one.error.message, "hint": one.error.hint} for one in report.refused
        ],
        "kernels": [dataclasses.asdict(row) for row in report.kernels[:top]],
        "kernels_omitted": max(len(report.kernels) - top, 0),
        "other_kernels": saved.brief(report.kernels[top:]),
        "what_if": [dataclasses.asdict(row) for row in report.what_if],
        "warnings": report.warnings,
    }
    return document(_head(report) | body | _graph(graph))


def _graph(graph: dict[str, Any] | None) -> dict[str, Any]:
    return {} if graph is None else {"graph": graph}


def _head(report: Report) -> dict[str, Any]:
    return {
        "source": dataclasses.asdict(report.source),
        "replay": {
            "step_time_us": report.replay.step_time_us,
            "error_pct": report.replay.error_pct,
            "derived_wait_us": report.replay.derived_wait_us,
            "kept_wait_us": report.replay.kept_wait_us,
        },
    }


def _speeds(speeds: Speeds) -> dict[str, Any]:
    """Steps by speeds; an infinite speed is null, as JSON has none."""
    points = [{"gpu_speed": gpu, "host_speed": _finite(host), "step_time_us": us} for gpu, host, us in speeds.points]
    network = [{"network_speed": _finite(speed), "step_time_us": us} for speed, us in speeds.network]
    return dataclasses.asdict(speeds) | {"points": points, "network": network}


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _target(prediction: Prediction) -> dict[str, Any]:
    return {
        "gpu": prediction.gpu,
        "cluster": prediction.cluster.slug if prediction.cluster else None,
        "layout": layout(prediction.layout),
        "pipeline": dataclasses.asdict(prediction.pipeline) if prediction.pipeline else None,
        "step_time_us": prediction.step.step_time_us,
        "low_us": prediction.low_us,
        "high_us": prediction.high_us,
        "speedup": prediction.speedup,
        "speedup_per_sample": prediction.speedup_per_sample,
        "kernel_time_us": prediction.step.kernel_time_us,
        "exposed_comm_us": prediction.step.exposed_comm_us,
        "waiting_us": prediction.step.waiting_us,
        "idle_us": prediction.step.idle_us,
        "with_contention": dataclasses.asdict(prediction.shared) if prediction.shared else None,
        "coverage": dataclasses.asdict(prediction.coverage),
        "fits_in_memory": prediction.memory.fits,
        "dollars_per_1000_steps": prediction.dollars,
        "dollars_per_1000_traced_steps": prediction.dollars_as_traced,
        "batch": dataclasses.asdict(prediction.batch) if prediction.batch else None,
        "per_second": prediction.per_second,
        "dollars_per_million": prediction.dollars_per_million,
        "notes": prediction.notes,
    }


def layout(of: Layout | None) -> dict[str, Any] | None:
    """How a job's ranks share its work; ``None`` where that isn't known."""
    return {"world_size": of.world_size, **dataclasses.asdict(of)} if of else None
