"""Python code that records a trace suited for predictions."""

from collections.abc import Iterator, Sequence

from tracekit.doctor.model import Check, Status
from tracekit.messages import Message
from tracekit.messages.doctor_checks import RECORD_WITH

ACTIVITIES = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
SHAPES = "record_shapes=True"
SCHEDULE = "schedule=schedule(wait=1, warmup=2, active=3, repeat=1)"
NO_STACKS = "with_stack=False"
NO_MODULES = "with_modules=False"
NO_MEMORY = "profile_memory=False"
SYNCS = "experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)"
SYNCS_SHORT = "enable_cuda_sync_events=True"

_ARGUMENTS = (
    ACTIVITIES,
    SCHEDULE,
    'on_trace_ready=tensorboard_trace_handler("traces", use_gzip=True)',
    SHAPES,
    NO_STACKS,
    NO_MODULES,
    NO_MEMORY,
)


def suggest(*options: str) -> Message:
    """Suggest arguments of ``torch.profiler.profile``."""
    return RECORD_WITH(options=options)


def build_snippet(checks: Sequence[Check], *, amd: bool) -> str:
    """Build the recommended recording code, with a mark on every option that the trace was recorded without.

    Args:
        checks: The evaluated checks.
        amd: Whether the GPU is AMD's, whose profiler has no sync events.
    """
    changed = {option for check in checks if check.status is not Status.OK for option in _find_arguments(check.option)}
    if not changed:
        return ""
    return "\n".join(_iter_lines(changed, amd=amd)) + "\n"


def _find_arguments(option: str) -> list[str]:
    return [argument for argument in (*_ARGUMENTS, SYNCS) if argument in option]


def _iter_lines(changed: set[str], *, amd: bool) -> Iterator[str]:
    """Yield the lines of the code, none longer than 78 characters, so that no terminal wraps them."""
    if not amd:
        yield "from torch._C._profiler import _ExperimentalConfig"
    yield "from torch.profiler import ProfilerActivity, profile, schedule"
    yield "from torch.profiler import tensorboard_trace_handler"
    yield ""
    if not amd:
        yield f"syncs = _ExperimentalConfig(enable_cuda_sync_events=True){_mark_if_changed(SYNCS in changed)}"
    yield "with profile("
    for argument in _ARGUMENTS:
        yield f"    {argument},{_mark_if_changed(argument in changed)}"
    if not amd:
        yield f"    experimental_config=syncs,{_mark_if_changed(SYNCS in changed)}"
    yield ") as profiler:"
    yield "    for batch in batches:  # your loop, on every rank"
    yield "        run_step(batch)"
    yield f"        profiler.step(){_mark_if_changed(SCHEDULE in changed)}"


def _mark_if_changed(changed: bool) -> str:
    return "  # changed" if changed else ""
