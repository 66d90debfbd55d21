"""NeuSight's labels of four GPUs, of Switch and of torch.compile, by the commands that stand in the table.

Its jobs in fp32 by eager PyTorch 2.1 or 2.4. Batches of labels are the job's: replicas share them, a pipeline gets them
in as many micro-batches as the label says. No whole job was fitted.
"""

import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from predictors import load_gpu
from tests.validation.studies.whole_jobs.captured_models import CONFIGS
from tests.validation.studies.whole_jobs.fp32_models import LABELS, read_label
from tests.validation.study import NEUSIGHT, MissingInputError, find_input, format_table
from tracekit.errors import TracekitError
from tracekit.request import PredictRequest, answers
from tracekit.request.program_options import ProgramOptions

INPUTS = (NEUSIGHT,)
CLUSTERS = {"NVIDIA_A100-SXM4-40GB": "4xa100-sxm-40gb", "NVIDIA_H100_80GB_HBM3": "4xh100-sxm"}
"""GPUs of labels of four -> clusters."""
GROUPS = ("four GPUs", "Switch", "torch.compile")
RANKS = 4


class Label(NamedTuple):
    """A published job.

    Attributes:
        group: One of :data:`GROUPS`.
        gpu: As NeuSight calls it.
        name: Its model, mode, tokens, batch and option.
        measured_ms: Its step.
    """

    group: str
    gpu: str
    name: str
    measured_ms: float


def run() -> str:
    """Return the errors of each group, and a row for each label, with its command."""
    if find_spec("transformers") is None:
        raise MissingInputError("install transformers")
    checkout = find_input(NEUSIGHT)
    rows, groups = [], dict[str, list[tuple[float, bool]]]()
    for label in list_labels(checkout):
        program, request, command = build_request(label)
        try:
            predicted, low, high = predict_job(label, checkout, program, request)
        except TracekitError as error:
            rows.append((label.group, command, f"{label.measured_ms:.4g}", str(error).partition(".")[0], ""))
            continue
        error_pct = 100 * (predicted / label.measured_ms - 1)
        groups.setdefault(label.group, []).append((error_pct, low <= label.measured_ms <= high))
        shown = f"{predicted:.4g} ({low:.4g}–{high:.4g})"
        rows.append((label.group, command, f"{label.measured_ms:.4g}", shown, f"{error_pct:+.0f} %"))
    headings = ("labels", "predicted", "mean absolute error", "worst", "bias", "in interval")
    return "\n".join(
        (
            "# NeuSight's labels of four GPUs, Switch and torch.compile\n",
            format_table(headings, (summarize(name, found) for name, found in groups.items())),
            format_table(("labels", "tracekit predict", "measured, ms", "predicted (90 % interval)", "error"), rows),
            "Source: github.com/sitar-lab/NeuSight at 6945927d, scripts/asplos/label.\n",
        )
    )


def list_labels(checkout: Path) -> Iterator[Label]:
    """List the labels that the other studies leave out, by group."""
    found = []
    for path in sorted((checkout / LABELS).glob("NVIDIA*/*.json")):
        name, measured = path.stem, read_label(path)
        group = GROUPS[2] if name.endswith("fusion") else GROUPS[1] if name.startswith("switchxl") else GROUPS[0]
        if measured and (group != GROUPS[0] or name.count("-") > 3):
            found.append(Label(group, path.parent.name, name, measured))
    yield from sorted(found, key=lambda label: GROUPS.index(label.group))


def build_request(label: Label) -> tuple[ProgramOptions, PredictRequest, str]:
    """Build the options of a label's command, and the command."""
    name, mode, tokens, batch, *option = label.name.split("-")
    program: dict[str, Any] = {"dtype": "fp32", "attention": "eager", "seq": int(tokens)}
    program |= {"train": True} if mode == "train" else {}
    target: dict[str, Any] = {"batch": float(batch)}
    if label.group == GROUPS[0]:
        layout, _, micro_batches = option[0].partition("_")
        target |= {"cluster": CLUSTERS[label.gpu], layout.rstrip("4"): RANKS}
        target |= {"micro_batches": int(micro_batches)} if micro_batches else {}
        target["batch"] /= RANKS if layout.startswith("dp") else int(micro_batches or 1)
    else:
        target["gpu"] = load_gpu(label.gpu.replace("_", " ")).slug
    if label.group == GROUPS[2]:
        program["compile"] = True
    flags = [f"{name}.json"]
    for key, value in (program | target).items():
        flags.append(f"--{key.replace('_', '-')}")
        flags += [] if value is True else [f"{value:g}" if key == "batch" else str(value)]
    return ProgramOptions(**program), PredictRequest(**target), shlex.join(flags)


def predict_job(
    label: Label, checkout: Path, program: ProgramOptions, request: PredictRequest
) -> tuple[float, float, float]:
    """Return a step's time and its interval in ms, as the command answers."""
    config = checkout / CONFIGS / f"{label.name.split('-')[0]}.json"
    trace, left = program.capture_trace(str(config), request)
    (found,) = answers.predict(answers.measure(trace, left), left).targets
    return found.step.step_time_us / 1e3, found.low_us / 1e3, found.high_us / 1e3


def summarize(name: str, found: list[tuple[float, bool]]) -> tuple[str, ...]:
    """Return the cells of a group's row."""
    errors = np.array([error for error, _ in found])
    return (
        *(name, str(len(found)), f"{np.mean(abs(errors)):.1f} %", f"{np.max(abs(errors)):.0f} %"),
        *(f"{np.mean(errors):+.1f} %", f"{sum(inside for _, inside in found)} of {len(found)}"),
    )
