"""Render the report as JSON. Times in microseconds, shares in percent."""

import dataclasses
import json
from typing import Any

from tracekit.escape import to_json
from tracekit.parallelism.layout import Layout
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.note_order import compute_effect_us
from tracekit.reporting import saved_prediction as saved
from tracekit.reporting.findings.finding import Evidence, Finding
from tracekit.reporting.model import Report
from tracekit.reporting.sections.decision import Decision
from tracekit.reporting.sections.sensitivity import SpeedSensitivity
from tracekit.reporting.sections.serving import ServingTimes
from tracekit.reporting.sections.what_if import EditSaving

SCHEMA_VERSION = 1


def dump_document(body: dict[str, Any]) -> str:
    """Return a versioned JSON document: its first key is the schema version."""
    return dump_json({"schema_version": SCHEMA_VERSION, **body})


def dump_json(data: Any) -> str:
    """Return indented JSON with a final line break; NaN and infinity are refused, as JSON has neither."""
    return to_json(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


MAX_PREDICTED_KERNELS = 2000


def dump_info(report: Report, graph: dict[str, Any] | None = None) -> str:
    """Return the JSON that ``tracekit info --json`` prints.

    Args:
        report: The report.
        graph: The graph check that ``-v`` adds, here as in the functions below; ``None`` without ``-v``.
    """
    body = {
        "coverage": dataclasses.asdict(report.coverage),
        "modules": [dataclasses.asdict(row) for row in report.modules],
        "over_bound": [dataclasses.asdict(row) for row in report.over_bound],
        "warnings": [warning.to_dict() for warning in report.warnings],
    }
    return dump_document(_build_head(report) | body | _wrap_graph(graph))


def dump_measured(report: Report, top: int, graph: dict[str, Any] | None = None) -> str:
    """Return the JSON that ``tracekit report --json`` prints, with the ``top`` kernels by time."""
    body = {
        "serving": _serialize_serving(report.serving),
        "breakdown": [dataclasses.asdict(row) for row in report.breakdown],
        "phases": [dataclasses.asdict(row) for row in report.phases],
        "modules": [dataclasses.asdict(row) for row in report.modules],
        "parts": [dataclasses.asdict(row) for row in report.parts],
        "idle": [dataclasses.asdict(row) | {"meaning": row.meaning.to_dict()} for row in report.idle],
        "streams": [dataclasses.asdict(row) | {"causes": dict(row.causes)} for row in report.streams],
        "ranks": [dataclasses.asdict(row) for row in report.ranks],
        "copies": [dataclasses.asdict(row) for row in report.copies],
        "course": dataclasses.asdict(report.course) if report.course else None,
        "kernels": [dataclasses.asdict(row) for row in report.kernels[:top]],
        "kernels_omitted": max(len(report.kernels) - top, 0),
        "critical_path": dataclasses.asdict(report.critical),
        "sensitivity": _serialize_speeds(report.speeds),
        "what_if": list(map(_serialize_edit, report.what_if)),
        "findings": [_serialize_finding(row) for row in report.findings],
        "warnings": [warning.to_dict() for warning in report.warnings],
    }
    return dump_document(_build_head(report) | body | _wrap_graph(graph))


def dump_prediction(report: Report, top: int = MAX_PREDICTED_KERNELS, graph: dict[str, Any] | None = None) -> str:
    """Return the JSON that ``tracekit predict --json`` prints and ``tracekit compare`` reads.

    Only the ``top`` kernels by time are listed with all fields.
    """
    targets = zip(report.targets, report.bars[1:], strict=True)
    body = {
        "decision": serialize_decision(report.decision) if report.decision else None,
        "targets": [serialize_target(target) | {"time": dict(bar.parts)} for target, bar in targets],
        "serving": _serialize_serving(report.serving),
        "refused": [dataclasses.asdict(one) for one in report.refused],
        "kernels": [dataclasses.asdict(row) for row in report.kernels[:top]],
        "kernels_omitted": max(len(report.kernels) - top, 0),
        "other_kernels": saved.to_saved_kernels(report.kernels[top:]),
        "what_if": list(map(_serialize_edit, report.what_if)),
        "warnings": [warning.to_dict() for warning in report.warnings],
    }
    return dump_document(_build_head(report) | body | _wrap_graph(graph))


def _wrap_graph(graph: dict[str, Any] | None) -> dict[str, Any]:
    return {} if graph is None else {"graph": graph}


def _build_head(report: Report) -> dict[str, Any]:
    return {
        "source": dataclasses.asdict(report.source),
        "replay": dataclasses.asdict(report.replay),
        "events": dataclasses.asdict(report.events) | {"summary": report.events.summary.to_dict()},
    }


def _serialize_serving(serving: ServingTimes | None) -> dict[str, Any] | None:
    if serving is None:
        return None
    return dataclasses.asdict(serving) | {"notes": [note.to_dict() for note in serving.notes]}


def _serialize_speeds(speeds: SpeedSensitivity) -> dict[str, Any]:
    """Return step times by speed; null is an infinite speed."""
    points = [{"gpu_speed": gpu, "host_speed": host, "step_time_us": us} for gpu, host, us in speeds.points]
    network = [{"network_speed": speed, "step_time_us": us} for speed, us in speeds.network]
    return dataclasses.asdict(speeds) | {"points": points, "network": network}


def _serialize_edit(edit: EditSaving) -> dict[str, Any]:
    return dataclasses.asdict(edit) | {"description": edit.description.to_dict()}


def _serialize_finding(finding: Finding) -> dict[str, Any]:
    own = {field.name: getattr(finding, field.name) for field in dataclasses.fields(finding) if field.name != "message"}
    own["evidence"] = list(map(_serialize_evidence, finding.evidence))
    own["bottleneck"] = dataclasses.asdict(finding.bottleneck) if finding.bottleneck else None
    return finding.message.to_dict() | {"title": finding.title, "advice": finding.advice} | own


def _serialize_evidence(row: Evidence) -> dict[str, Any]:
    return {"what": row.what, "time_us": row.time_us, "detail": row.detail.to_dict() if row.detail else None}


def serialize_target(prediction: PredictedStep) -> dict[str, Any]:
    """Return a prediction as a dictionary."""
    return {
        "gpu": prediction.gpu,
        "cluster": prediction.cluster,
        "layout": serialize_layout(prediction.layout),
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
        "with_contention": dataclasses.asdict(prediction.contention) if prediction.contention else None,
        "with_same_host": dataclasses.asdict(prediction.same_host) if prediction.same_host else None,
        "with_usual_host": dataclasses.asdict(prediction.usual_host) if prediction.usual_host else None,
        "coverage": dataclasses.asdict(prediction.coverage),
        "fits_in_memory": prediction.memory.fits,
        "dollars_per_1000_steps": prediction.dollars_per_1000_steps,
        "dollars_per_1000_traced_steps": prediction.dollars_per_1000_traced_steps,
        "batch": dataclasses.asdict(prediction.batch) if prediction.batch else None,
        "per_second": prediction.per_second,
        "dollars_per_million": prediction.dollars_per_million,
        "energy": dataclasses.asdict(prediction.energy),
        "joules_per_unit": prediction.joules_per_unit,
        "forecast": dataclasses.asdict(prediction.forecast) if prediction.forecast else None,
        "experience": dataclasses.asdict(prediction.experience) if prediction.experience else None,
        "notes": [
            note.to_dict() | {"effect_us": compute_effect_us(note, prediction.step.step_time_us)}
            for note in prediction.notes
        ],
    }


def serialize_decision(decision: Decision) -> dict[str, Any]:
    """Return a decision as a dictionary."""
    targets = [
        dataclasses.asdict(one)
        | {"setting": [part.to_dict() for part in one.setting], "sentence": one.sentence.to_dict()}
        for one in decision.targets
    ]
    return dataclasses.asdict(decision) | {"sentence": decision.sentence.to_dict(), "targets": targets}


def serialize_layout(of: Layout | None) -> dict[str, Any] | None:
    """Return a job's layout as a dictionary; ``None`` where it isn't known."""
    return {"world_size": of.world_size, **dataclasses.asdict(of)} if of else None
