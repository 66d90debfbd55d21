"""How to record a trace that predicts well, as Python to paste."""

from collections.abc import Iterator, Sequence

from tracekit.doctor.model import Check, Status

ACTIVITIES = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
SHAPES = "record_shapes=True"
SCHEDULE = "schedule=schedule(wait=1, warmup=2, active=3, repeat=1)"
NO_STACKS = "with_stack=False"
NO_MODULES = "with_modules=False"
NO_MEMORY = "profile_memory=False"
SYNCS = "experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)"
SYNCS_IN_SHORT = "enable_cuda_sync_events=True (in experimental_config)"

_ARGUMENTS = (
    ACTIVITIES,
    SCHEDULE,
    'on_trace_ready=tensorboard_trace_handler("traces", use_gzip=True)',
    SHAPES,
    NO_STACKS,
    NO_MODULES,
    NO_MEMORY,
)


def snippet(checks: Sequence[Check], *, amd: bool) -> str:
    """The recommended recording, with a mark on every option that the trace was recorded without.

    Args:
        checks: As they went.
        amd: Whether the GPU is AMD's, whose profiler knows no sync events.
    """
    changed = {option for check in checks if check.status is not Status.OK for option in _split(check.option)}
    if not changed:
        return ""
    return "\n".join(_lines(changed, amd=amd)) + "\n"


def _split(option: str) -> list[str]:
    return [argument for argument in (*_ARGUMENTS, SYNCS) if argument in option]


def _lines(changed: set[str], *, amd: bool) -> Iterator[str]:
    """No line is longer than 78 characters, so that no terminal breaks it."""
    if not amd:
        yield "from torch._C._profiler import _ExperimentalConfig"
    yield "from torch.profiler import ProfilerActivity, profile, schedule"
    yield "from torch.profiler import tensorboard_trace_handler"
    yield ""
    if not amd:
        yield f"syncs = _ExperimentalConfig(enable_cuda_sync_events=True){_mark(SYNCS in changed)}"
    yield "with profile("
    for argument in _ARGUMENTS:
        yield f"    {argument},{_mark(argument in changed)}"
    if not amd:
        yield f"    experimental_config=syncs,{_mark(SYNCS in changed)}"
    yield ") as profiler:"
    yield "    for batch in batches:  # your loop, on every rank"
    yield "        run_step(batch)"
    yield f"        profiler.step(){_mark(SCHEDULE in changed)}"


def _mark(changed: bool) -> str:
    return "  # changed" if changed else ""
