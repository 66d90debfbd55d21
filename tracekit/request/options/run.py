"""Options of what is measured, and of what changes in it before it is reported or predicted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tracekit.bounds import MAX_COUNT, MAX_ZIPF_ALPHA
from tracekit.errors import RequestError, StepError
from tracekit.messages import models as index_messages
from tracekit.messages import requests as messages
from tracekit.numbers import NUMBER_PATTERN
from tracekit.request.option import Option, Panel, Request, split_values

if TYPE_CHECKING:
    from tracekit.models.lookups import IndexPattern

STEPS = re.compile(r"-?[0-9]{1,18}(:-?[0-9]{1,18})?")


SOURCE_GPU = Option("The GPU of the trace, where it doesn't say or says it wrong.", "GPU of the trace")


@dataclass(frozen=True, kw_only=True)
class StepOptions(Request):
    """Which steps are measured."""

    steps: Annotated[
        int | str | None,
        Option(
            "Steps to measure (ProfilerStep numbers; without these, or where they repeat, from 0); default all but the "
            "first of several.",
            "Steps",
            "N[:M]",
        ),
    ] = None

    @property
    def step_range(self) -> str | None:
        """The steps as text, ``7`` or ``7:9``."""
        return None if self.steps is None else str(self.steps).strip()

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        if self.step_range is not None and not STEPS.fullmatch(self.step_range):
            raise StepError(messages.STEPS_NOT_A_RANGE(steps=self.step_range))


@dataclass(frozen=True, kw_only=True)
class RunOptions(StepOptions):
    """What is measured, and what is known of it."""

    source_gpu: Annotated[str | None, SOURCE_GPU] = None
    model_config: Annotated[
        str | None,
        Option(
            "The config.json of the model that an engine served: gives the sizes that CUDA graphs hide.",
            "Model configuration",
            "FILE",
        ),
    ] = None
    framework: Annotated[
        str | None,
        Option(
            "The engine that ran the trace, with its version: vllm, sglang or trtllm, such as vllm==0.19.0.",
            "Serving engine and version",
            "NAME[==VERSION]",
        ),
    ] = None
    accepted_tokens: Annotated[
        float | None,
        Option(
            "Tokens that a sequence gets in a step of speculative decoding, of those verified; default: from 1 to all.",
            "Accepted tokens per sequence",
            "N",
            minimum=1,
            maximum=MAX_COUNT,
        ),
    ] = None
    zipf: Annotated[
        float | None,
        Option(
            "Exponent of Zipf's law by which rows of embedding tables are looked up, 0 for evenly; default 1.05, and "
            "intervals hold 0 to 1.2.",
            "Skew of look-ups",
            "ALPHA",
            minimum=0,
            maximum=MAX_ZIPF_ALPHA,
        ),
    ] = None
    indices: Annotated[
        str | None,
        Option(
            "Recorded indices into embedding tables, or how often rows are drawn: .npy, .npz, .pt, .csv, "
            "locality_stats.txt.",
            "Indices of look-ups",
            "FILE",
        ),
    ] = None
    without_rule: Annotated[
        str | Sequence[str],
        Option("Inference rule to switch off. `tracekit info -v` lists them.", "Inference rules to switch off"),
    ] = ()

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        from tracekit.inference_rules import select_rules
        from tracekit.prediction.targets import resolve_gpu_name

        super().check()
        if self.source_gpu is not None:
            resolve_gpu_name(self.source_gpu)
        if self.framework is not None:
            check_framework(self.framework)
        select_rules(self.rules_off)
        if self.zipf is not None and self.indices is not None:
            raise RequestError(index_messages.INDICES_GIVEN_TWICE())

    @property
    def rules_off(self) -> tuple[str, ...]:
        """The inference rules that are off."""
        return split_values(self.without_rule)

    @property
    def index_pattern(self) -> "IndexPattern | None":
        """How rows of embedding tables are looked up; None if nobody tells.

        Raises:
            IndexFileError: The file can't be read, or has no look-ups.
        """
        from tracekit.capturing.index_files import read_index_pattern
        from tracekit.models.lookups import ZipfPattern

        if self.indices is not None:
            return read_index_pattern(self.indices)
        return None if self.zipf is None else ZipfPattern(self.zipf)


def check_framework(name: str) -> None:
    """Raise :class:`~tracekit.errors.RequestError` if a name is no serving engine, or has no version after ``==``."""
    from predictors.errors import PredictorError
    from predictors.kernel_identity import parse_framework

    try:
        parse_framework(name)
    except PredictorError as error:
        raise RequestError(messages.FRAMEWORK_UNKNOWN(framework=name)) from error


TIME = re.compile(rf"({NUMBER_PATTERN}) ?(us|µs|ms|s)")
UNITS_US = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}


def parse_time_us(text: str) -> float:
    """Parse a time such as ``12.3ms``, in us.

    Raises:
        RequestError: The text is no time with a unit, or the time is zero.
    """
    found = TIME.fullmatch(text.strip())
    if found is None or not (time_us := float(found[1]) * UNITS_US[found[2]]):
        raise RequestError(messages.TIME_WITHOUT_UNIT(time=text))
    return time_us


@dataclass(frozen=True, kw_only=True)
class EditOptions(Request):
    """What changes in the run before it is reported or predicted."""

    panel = Panel.WHAT_IF

    what_if: Annotated[
        str | Sequence[str],
        Option(
            "Replay with a change, such as 'scale(family=gemm, 0.5)' or 'no-sync(aten::item)'; several in order.",
            "What-if edits",
            "EDIT",
            separator="\n",
        ),
    ] = ()
    host_speed: Annotated[
        float | str | None,
        Option(
            "How many times as fast the CPU is, such as 1.3 or python=1.3,op=1.2; default unchanged.",
            "Host speed",
            "SPEED",
        ),
    ] = None
    unprofiled_step: Annotated[
        str | None,
        Option(
            "What a step takes without the profiler, such as 12.3ms: takes the profiler's overhead out.",
            "Step time without the profiler",
            "TIME",
        ),
    ] = None

    @property
    def edits(self) -> list[str]:
        """The what-if edits in order, the host's speed first."""
        from tracekit.whatif.registry import parse_edits

        speed = self.host_speed
        return parse_edits(split_values(self.what_if), f"{speed:.15g}" if isinstance(speed, int | float) else speed)

    @property
    def unprofiled_step_us(self) -> float | None:
        """Step time without the profiler."""
        if self.unprofiled_step is None:
            return None
        return parse_time_us(self.unprofiled_step)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        _ = self.edits, self.unprofiled_step_us
