"""Advice in the words of who recorded the trace: serving engines, which run the profiler, and other tools than it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from tracekit.doctor import recipe
from tracekit.doctor.model import Check, Status
from tracekit.ingest.batches import find_batches
from tracekit.messages.doctor_checks import RECORD_BATCHES
from tracekit.messages.traces import FORMAT_LACKS
from tracekit.trace import RankTrace


@dataclass(frozen=True, slots=True)
class Recorder:
    """A serving engine or another tool that records traces.

    Attributes:
        name: Its name.
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
        recipe.SHAPES: "torch_profiler_record_shapes: true",
        recipe.NO_STACKS: "torch_profiler_with_stack: false",
        recipe.NO_MEMORY: "torch_profiler_with_memory: false",
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
    {recipe.SHAPES: "record_shapes: true", recipe.NO_STACKS: "with_stack: false"},
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
    recipe.SHAPES: "torch.autograd.profiler.emit_nvtx(record_shapes=True)",
    recipe.SCHEDULE: 'torch.cuda.nvtx.range(f"step {number}")',
}
NSIGHT = Recorder(
    "Nsight Systems",
    _NVTX_SWITCHES | {recipe.ACTIVITIES: "--trace=cuda,nvtx", recipe.SYNCS: "--cuda-event-trace=true"},
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
    _NVTX_SWITCHES | {recipe.ACTIVITIES: "--runtime-trace"},
    (*_EMIT_NVTX, "# in the shell:", "rocprofv3 --runtime-trace --output-format json -- python train.py"),
)
"""``--runtime-trace`` is ``--hip-runtime-trace``, ``--kernel-trace``, ``--memory-copy-trace``, ``--marker-trace``..."""
JAX = Recorder(
    "JAX or XLA",
    {
        recipe.SCHEDULE: 'jax.profiler.StepTraceAnnotation("train", step_num=number)',
        recipe.ACTIVITIES: "ProfileOptions.host_tracer_level = 2",
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
        return replace(check, fix=recipe.suggest(*found), option=", ".join(found))
    is_batch = recorder.runs_batches and recipe.SCHEDULE in check.option
    return replace(check, fix=RECORD_BATCHES() if is_batch else None, option="")


def build_commands(checks: Sequence[Check], recorder: Recorder) -> str:
    """Build the recommended commands, if any check asks for another recording."""
    needed = any(check.fix is not None for check in checks if check.status is not Status.OK)
    return "\n".join(recorder.commands) + "\n" if needed and recorder.commands else ""
