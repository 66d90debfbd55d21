"""Advice in the words of serving engines, which run the profiler themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from tracekit.doctor import recipe
from tracekit.doctor.model import Check, Status
from tracekit.ingest.batches import find_batches
from tracekit.messages.doctor_checks import RECORD_BATCHES
from tracekit.trace import RankTrace


@dataclass(frozen=True, slots=True)
class ServingEngine:
    """A serving engine.

    Attributes:
        name: Its name.
        switches: What stands for each argument of ``torch.profiler.profile``; others can't be set.
        commands: Commands that record a suitable trace.
    """

    name: str
    switches: Mapping[str, str]
    commands: tuple[str, ...]


VLLM = ServingEngine(
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
)
"""Switches of --profiler-config in vLLM 0.13 and newer (vllm/config/profiler.py)."""
SGLANG = ServingEngine(
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
)
SGLANG_MARK = r"^step\["


def identify_engine(trace: RankTrace) -> ServingEngine | None:
    """Identify the engine by its marks; None if it marks no batches."""
    if find_batches(trace).is_empty():
        return None
    return SGLANG if trace.annotations.select(pl.col("name").str.contains(SGLANG_MARK).any()).item() else VLLM


def translate_check(check: Check, engine: ServingEngine) -> Check:
    """Return the check with what fixes it on this engine; without a fix if the engine has no switch for it."""
    if not check.option:
        return check
    found = [switch for option, switch in engine.switches.items() if option in check.option]
    if found:
        return replace(check, fix=recipe.suggest(*found), option=", ".join(found))
    return replace(check, fix=RECORD_BATCHES() if recipe.SCHEDULE in check.option else None, option="")


def build_commands(checks: Sequence[Check], engine: ServingEngine) -> str:
    """Build the recommended commands, if any check asks for another recording."""
    needed = any(check.fix is not None for check in checks if check.status is not Status.OK)
    return "\n".join(engine.commands) + "\n" if needed else ""
