"""Generate the page of what is known of each GPU, from the errors that ship with the weights."""

import tomllib
from typing import Any

from docs.site.markdown import format_table
from predictors.training.report import LAW_TITLES
from predictors.weights_file import SHIPPED_WEIGHTS

LAWS = ("gemm half", "prefill", "decode", "moe half", "gemm fp32", "conv fp32")
NONE = "–"

Errors = dict[str, dict[str, Any]]
"""GPU -> law -> median |error| in percent."""


def list_gpu_accuracy() -> str:
    """Return the page: a row for each GPU that was measured, or that published jobs were predicted for."""
    jobs, measured = (read_weights(name) for name in ("jobs", "card"))
    kernels: Errors = {}
    for law, of_law in measured["laws"].items():
        for errors in of_law.get("in_base", ()):
            kernels.setdefault(errors["gpu"], {})[law] = f"{errors['median']:.1f}"
    rows = []
    listed = {gpu for gpu in kernels if kernels[gpu].keys() & {*LAWS} and " on " not in gpu}
    for gpu in sorted({*jobs["jobs"], *listed}):
        found = jobs["jobs"].get(gpu)
        job = f"{found['median']:+.0f} %, worst {found['worst']:+.0f} % ({found['pairs']})" if found else NONE
        rows.append((f"`{gpu}`", job, *(kernels.get(gpu, {}).get(law, NONE) for law in LAWS)))
    headings = ("GPU", "published jobs predicted for it", *(LAW_TITLES[law] for law in LAWS))
    return "\n".join(
        (
            "# Accuracy by GPU",
            "",
            "*Published jobs*: throughputs predicted from another kind of GPU, as median error, worst error and number "
            "of pairs; above zero is too fast ([by source](../results/whole_jobs/throughputs.md)). The others are "
            "medians of |error| of kernels in percent, from shapes other than those in the fit, with what a "
            "trace tells of the software. [All families](../results/kernels/by_family.md). A GPU that isn't listed was "
            "never measured: its predictions rest on relatives, or on the law alone.",
            "",
            *format_table(headings, rows),
        )
    )


def read_weights(name: str) -> dict[str, Any]:
    """Read a table of errors that ships with the weights."""
    return tomllib.loads((SHIPPED_WEIGHTS / f"{name}.toml").read_text())
