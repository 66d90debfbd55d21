"""Published throughputs of PyTorch on CPUs, predicted from each program's code.

Several instances run beside one another, each on cores of its own; one of them is predicted as if it were alone. What
Intel's cores reach of their peak (`WIDE_FRACTION` of predictors/laws/cpu.py) is from the figures of the Xeon 8380, so
that those of the Xeon 8480 alone are a test.
"""

from collections import defaultdict
from functools import cache

import numpy as np

from predictors import resolve_gpu
from tests.validation.study import format_table, list_sources, read_published
from tracekit.request import PredictRequest, answers
from tracekit.request.program_options import ProgramOptions
from tracekit.trace import Trace

INPUTS = ()
PUBLISHED = "cpu_steps"
FITTED = "xeon-8380"


@cache
def capture(program: str) -> Trace:
    """Capture a program's forward pass of one sample."""
    from tests.validation import cpu_programs

    name = f"{cpu_programs.__file__}:{cpu_programs.PUBLISHED[program].__name__}"
    return ProgramOptions().capture_trace(name, PredictRequest(gpu=["h100-sxm"]))[0]


def predict(program: str, cpu: str, cores: int) -> tuple[float, float, float]:
    """Predict the step of one instance in microseconds: likely, low and high."""
    request = PredictRequest(gpu=[f"{resolve_gpu(cpu).gpu.slug}:{cores}"])
    found = answers.predict(answers.measure(capture(program), request), request).targets[0]
    return found.step.step_time_us, found.low_us, found.high_us


def run() -> str:
    """Return the table."""
    rows, inside, errors = [], [], defaultdict(list)
    for one in read_published(PUBLISHED).iter_rows(named=True):
        measured_us = 1e6 * one["instances"] / one["samples_per_s"]
        likely, low, high = predict(one["program"], one["cpu"], one["cores"])
        errors[one["cpu"]].append(abs(likely / measured_us - 1))
        inside.append(low <= measured_us <= high)
        name = f"{one['program']}, {one['instances']} x {one['cores']} cores of {one['cpu']}"
        shown = f"{100 * (likely / measured_us - 1):+.0f} %"
        rows.append((name, f"{measured_us / 1e3:.1f} ms", f"{likely / 1e3:.1f} ms", shown))
    for cpu, mine in errors.items():
        fitted = " (fitted to)" if cpu == FITTED else ""
        rows.append((f"**{cpu}{fitted}: median, without sign**", "", "", f"**{100 * float(np.median(mine)):.0f} %**"))
    rows.append(("inside the 90 % interval", "", "", f"{100 * float(np.mean(inside)):.0f} %"))
    table = format_table(("program", "published", "predicted", "error"), rows)
    return f"# Published throughputs of PyTorch on CPUs\n\n{table}\nBatch 1, fp32. {list_sources(PUBLISHED)}"
