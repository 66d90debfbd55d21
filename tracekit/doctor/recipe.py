"""How to record a better trace: Python code, or the words of the engine or tool that recorded it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from tracekit.doctor.model import Check, Status
from tracekit.ingest.batches import find_batches
from tracekit.messages import Message
from tracekit.messages.doctor_checks import RECORD_BATCHES, RECORD_WITH
from tracekit.messages.traces import FORMAT_LACKS
from tracekit.trace import RankTrace

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

    The profiler of ``amd`` GPUs has no sync events.
    """
    missed = [check.option for check in checks if check.status is not Status.OK]
    changed = {argument for argument in (*_ARGUMENTS, SYNCS) if any(argument in option for option in missed)}
    if not changed:
        return ""
    return "\n".join(_iter_lines(changed, amd=amd)) + "\n"


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


@dataclass(frozen=True, slots=True)
class Recorder:
    """A serving engine or another tool that records traces.

    Attributes:
        switches: What stands for each argument of ``torch.profiler.profile``; others can't be set.
        commands: Commands or code that record a suitable trace.
        runs_batches: Whether its steps are batches, which it marks itself.
    """

    name: str
    switches: Mapping[str, str]
    commands: tuple[str, ...]
    runs_batches: bool = False


VLLM = Recorder(
    "vLLM",
    {
        SHAPES: "torch_profiler_record_shapes: true",
        NO_STACKS: "torch_profiler_with_stack: false",
        NO_MEMORY: "torch_profiler_with_memory: false",
    },
    (
        "vllm serve MODEL --profiler-config '{",
        '    "profiler": "torch", "torch_profiler_dir": "/traces",',
        '    "torch_profiler_record_shapes": true,',
        '    "torch_profiler_with_stack": false}\'',
        "# under load, for a dozen batches or more:",
        "curl -X POST http://127.0.0.1:8000/start_profile",
        "curl -X POST http://127.0.0.1:8000/stop_profile",
    ),
    runs_batches=True,
)
"""Switches of --profiler-config in vLLM 0.13 and newer (vllm/config/profiler.py)."""
SGLANG = Recorder(
    "SGLang",
    {SHAPES: "record_shapes: true", NO_STACKS: "with_stack: false"},
    (
        "export SGLANG_TORCH_PROFILER_DIR=/traces  # of the server",
        "# under load:",
        "curl -X POST http://127.0.0.1:30000/start_profile \\",
        "    -H 'Content-Type: application/json' -d '{",
        '    "num_steps": 12, "activities": ["CPU", "GPU"],',
        '    "record_shapes": true, "with_stack": false}\'',
    ),
    runs_batches=True,
)
SGLANG_MARK = r"^step\["


_EMIT_NVTX = (
    "# your loop, in train.py:",
    "with torch.autograd.profiler.emit_nvtx(record_shapes=True):",
    "    for number, batch in enumerate(batches):",
    '        with torch.cuda.nvtx.range(f"step {number}"):',
    "            run_step(batch)",
)
_NVTX_SWITCHES = {
    SHAPES: "torch.autograd.profiler.emit_nvtx(record_shapes=True)",
    SCHEDULE: 'torch.cuda.nvtx.range(f"step {number}")',
}
NSIGHT = Recorder(
    "Nsight Systems",
    _NVTX_SWITCHES | {ACTIVITIES: "--trace=cuda,nvtx", SYNCS: "--cuda-event-trace=true"},
    (
        *_EMIT_NVTX,
        "# in the shell:",
        "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node \\",
        "    --cuda-event-trace=true -o report python train.py",
        "nsys export --type sqlite report.nsys-rep",
    ),
)
ROCPROF = Recorder(
    "rocprofv3",
    _NVTX_SWITCHES | {ACTIVITIES: "--runtime-trace"},
    (*_EMIT_NVTX, "# in the shell:", "rocprofv3 --runtime-trace --output-format json -- python train.py"),
)
"""``--runtime-trace`` is ``--hip-runtime-trace``, ``--kernel-trace``, ``--memory-copy-trace``, ``--marker-trace``..."""
JAX = Recorder(
    "JAX or XLA",
    {
        SCHEDULE: 'jax.profiler.StepTraceAnnotation("train", step_num=number)',
        ACTIVITIES: "ProfileOptions.host_tracer_level = 2",
    },
    (
        "options = jax.profiler.ProfileOptions()",
        "options.host_tracer_level, options.python_tracer_level = 2, 0",
        'with jax.profiler.trace("/traces", profiler_options=options):',
        "    for number, batch in enumerate(batches):",
        '        with jax.profiler.StepTraceAnnotation("train", step_num=number):',
        "            run_step(batch).block_until_ready()",
    ),
)
CHAKRA = Recorder("Chakra", {}, ())
TOOLS = {tool.name: tool for tool in (NSIGHT, ROCPROF, JAX, CHAKRA)}
"""Other tools than PyTorch's profiler, by the names that their formats have."""


def identify_recorder(trace: RankTrace) -> Recorder | None:
    """Identify an engine by its marks of batches, another tool by its format; ``None`` for PyTorch's profiler alone."""
    tool = next((one.values["tool"] for one in trace.warnings if one.template is FORMAT_LACKS), None)
    if tool in TOOLS:
        return TOOLS[str(tool)]
    if find_batches(trace).is_empty():
        return None
    return SGLANG if trace.annotations.select(pl.col("name").str.contains(SGLANG_MARK).any()).item() else VLLM


def translate_check(check: Check, recorder: Recorder) -> Check:
    """Return the check with what fixes it on this recorder; without a fix if the recorder has no switch for it."""
    if not check.option:
        return check
    found = [switch for option, switch in recorder.switches.items() if option in check.option]
    if found:
        return replace(check, fix=suggest(*found), option=", ".join(found))
    is_batch = recorder.runs_batches and SCHEDULE in check.option
    return replace(check, fix=RECORD_BATCHES() if is_batch else None, option="")


def build_commands(checks: Sequence[Check], recorder: Recorder) -> str:
    """Build the recommended commands, if any check asks for another recording."""
    needed = any(check.fix is not None for check in checks if check.status is not Status.OK)
    return "\n".join(recorder.commands) + "\n" if needed and recorder.commands else ""
