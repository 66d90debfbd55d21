"""Record a program: plan and count its steps, and run the profiler over some of them."""

import atexit
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, schedule

from tracekit.errors import TracekitError
from tracekit.escape import to_line
from tracekit.messages import Message, Value
from tracekit.messages import recordings as messages
from tracekit.recording import facts


class StepClock:
    """Times steps at their end on the GPU, without synchronizing the CPU between them."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []
        self._moments: list[float] = []

    def mark_step_end(self) -> None:
        """Mark the end of a step."""
        if torch.cuda.is_available():
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        else:
            self._moments.append(time.perf_counter())

    def compute_step_times_us(self) -> list[float]:
        """Return the time between each two marks in microseconds; synchronizes with the GPU."""
        if not self._events:
            return [1e6 * (after - before) for before, after in zip(self._moments, self._moments[1:], strict=False)]
        self._events[-1].synchronize()
        pairs = zip(self._events, self._events[1:], strict=False)
        return [1e3 * before.elapsed_time(after) for before, after in pairs]


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """Number of steps of each stage, in this order.

    Attributes:
        wait: Steps that are skipped: the first ones load kernels, allocate memory and choose algorithms.
        timed: Steps that are timed without the profiler.
        warmup: Steps that the profiler discards, as its own start slows them down.
        active: Steps that it records.
    """

    wait: int = 5
    timed: int = 5
    warmup: int = 2
    active: int = 3

    def __post_init__(self) -> None:
        """Refuse counts that record nothing.

        Raises:
            TracekitError: A count is negative, or no step would be recorded.
        """
        if min(self.wait, self.timed, self.warmup, self.active - 1) < 0:
            raise TracekitError(messages.PLAN_EMPTY(plan=str(self)))

    @property
    def first_profiled_step(self) -> int:
        """Index of the step before which the profiler starts."""
        return self.wait + self.timed

    @property
    def first_recorded_step(self) -> int:
        """Index of the first recorded step."""
        return self.first_profiled_step + self.warmup

    @property
    def total_steps(self) -> int:
        """Number of steps that a program must take until its trace is complete."""
        return self.first_recorded_step + self.active

    def __str__(self) -> str:
        """Describe the plan in words."""
        return str(self.to_message())

    def to_message(self) -> Message:
        """Describe the plan."""
        return messages.RECORDING_PLANNED(wait=self.wait, timed=self.timed, warmup=self.warmup, active=self.active)


P = ParamSpec("P")
R = TypeVar("R")

METADATA_KEY = "tracekit"


class RecordingError(TracekitError):
    """Nothing was recorded, or the recording can't be written."""


class Recording:
    """Records some steps of a program: a context manager whose :meth:`step` ends each step, or a decorator of a step.

    After the last recorded step it is idle, and the program continues at its normal speed.

    Args:
        folder: Where the traces are written, one file per rank.
        name: Name of the file without suffixes.
        plan: How many steps are skipped, timed and recorded.
        overwrite: Whether a trace of that name may be replaced.
        quiet: Whether to print nothing on stderr.

    Raises:
        RecordingError: A trace of that name already exists, or the folder can't be created.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] = "traces",
        *,
        name: str = "trace",
        plan: RecordingPlan | None = None,
        overwrite: bool = False,
        quiet: bool = False,
    ) -> None:
        self.plan = plan or RecordingPlan()
        self.steps_seen = 0
        self._quiet = quiet
        self._overwrite = overwrite
        self._folder, self._name = Path(folder), name
        self._clock = StepClock()
        self._profiler: profile | None = None
        self._step_times_us: list[float] = []
        self._facts: facts.Facts = {}
        self._path: Path | None = None
        self._is_open = False

    @property
    def path(self) -> Path | None:
        """Path of the written trace; ``None`` until it is written."""
        return self._path

    @property
    def is_complete(self) -> bool:
        """Whether all planned steps are recorded."""
        return self.steps_seen >= self.plan.total_steps

    def __enter__(self) -> Self:
        """Begin to count steps."""
        self._check_folder()
        self._print(self.plan.to_message())
        if not torch.cuda.is_available():
            self._print(messages.RECORDING_WITHOUT_GPU())
        self._is_open = True
        atexit.register(self._on_exit)
        self._prepare_step(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the recording if the program ended early, and grade it.

        Raises:
            RecordingError: The program took too few steps to record any.
        """
        self._stop()
        if self._path is not None:
            self._print_grade(self._path)
        elif error is None:
            raise RecordingError(self._describe_too_few_steps())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function each of whose calls is a step; the trace is written once enough steps were made.

        If the program ends earlier, the steps recorded until then are written.
        """

        @wraps(function)
        def step(*args: P.args, **kwargs: P.kwargs) -> R:
            if not self._is_open and self.steps_seen == 0:
                self.__enter__()
            result = function(*args, **kwargs)
            if self._is_open:
                self.step()
                if self.is_complete:
                    self.__exit__(None, None, None)
            return result

        return step

    def step(self) -> None:
        """End a step."""
        if self.is_complete:
            return
        self.steps_seen += 1
        if self._profiler is not None:
            if self.is_complete:
                self._close_profiler()
                return
            self._profiler.step()
        self._prepare_step(self.steps_seen)

    def _on_exit(self) -> None:
        """Stop the profiler when Python exits; a profiler that still runs then crashes the process."""
        self._stop()
        if self._path is None:
            self._print(self._describe_too_few_steps())

    def _stop(self) -> None:
        self._is_open = False
        atexit.unregister(self._on_exit)
        if self._profiler is not None:
            self._close_profiler()

    def _describe_too_few_steps(self) -> Message:
        return messages.STEPS_TOO_FEW(steps=self.steps_seen, first=self.plan.first_recorded_step + 1)

    def _prepare_step(self, step: int) -> None:
        plan = self.plan
        if plan.timed and plan.wait <= step <= plan.first_profiled_step:
            self._clock.mark_step_end()
        if step == plan.first_profiled_step:
            self._step_times_us = self._clock.compute_step_times_us()
            self._open_profiler()

    def _open_profiler(self) -> None:
        """Start the profiler.

        Its schedule has one active step more than is recorded, so that only :meth:`_close_profiler` ends the recording.
        """
        self._facts = facts.collect_facts() | {"unprofiled_step_us": self._step_times_us}
        facts.reset_peak_memory()
        self._profiler = profile(
            activities=_get_activities(),
            schedule=schedule(wait=0, warmup=self.plan.warmup, active=self.plan.active + 1, repeat=1),
            record_shapes=True,
            on_trace_ready=self._write_trace,
            experimental_config=_make_experimental_config(),
        )
        self._profiler.start()

    def _close_profiler(self) -> None:
        """Stop the profiler; it writes the trace if at least one step was recorded."""
        profiler = self._profiler
        assert profiler is not None
        self._profiler = None
        if self.steps_seen > self.plan.first_recorded_step:
            profiler.add_metadata_json(METADATA_KEY, json.dumps(self._facts | {"memory": facts.read_peak_memory()}))
        else:
            profiler.on_trace_ready = None
        profiler.stop()

    def _write_trace(self, profiler: profile) -> None:
        path = self._get_output_path()
        partial = path.with_name(f".{os.getpid()}.{path.name}")
        try:
            profiler.export_chrome_trace(str(partial))
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise RecordingError(messages.RECORDING_NOT_WRITTEN(path=str(path), reason=error.strerror)) from error
        self._path = path
        self._print(self._describe_output(path))

    def _describe_output(self, path: Path) -> Message:
        written: dict[str, Value] = {"path": str(path), "size_bytes": path.stat().st_size}
        if not self._step_times_us:
            return messages.RECORDING_WRITTEN(**written)
        times = sorted(self._step_times_us)
        return messages.RECORDING_WRITTEN_AND_TIMED(**written, step_time_us=times[len(times) // 2])

    def _check_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordingError(
                messages.RECORDING_FOLDER_NOT_MADE(path=str(self._folder), reason=error.strerror)
            ) from error
        if self._get_output_path().exists() and not self._overwrite:
            raise RecordingError(messages.RECORDING_EXISTS(path=str(self._get_output_path())))

    def _get_output_path(self) -> Path:
        rank = _get_rank()
        return self._folder / (f"{self._name}.json.gz" if rank is None else f"{self._name}_rank{rank}.json.gz")

    def _print_grade(self, path: Path) -> None:
        """Print the grade of ``tracekit doctor`` on the first rank, if tracekit's own requirements are installed."""
        if self._quiet or _get_rank():
            return
        try:
            from tracekit.doctor import examine
            from tracekit.ingest import load
            from tracekit.run import prepare_run
        except ImportError:
            self._print(messages.RECORDING_UNGRADED(path=str(path)))
            return
        try:
            trace = load(str(path), cache=False)
            diagnosis = examine(trace, prepare_run(trace))
        except TracekitError as error:
            self._print(error.catalogue_message)
            return
        if diagnosis.best:
            self._print(messages.RECORDING_GRADED_WITH_FIX(grade=diagnosis.grade, fix=str(diagnosis.best.fix)))
        else:
            self._print(messages.RECORDING_GRADED(grade=diagnosis.grade))

    def _print(self, message: Message) -> None:
        if not self._quiet and not _get_rank():
            print(to_line(f"tracekit: {message}"), file=sys.stderr)  # noqa: T201


def _get_rank() -> int | None:
    """Return the rank in a distributed job; ``None`` outside one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ["RANK"]) if os.environ.get("RANK", "").isdigit() else None


def _get_activities() -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]


def _make_experimental_config() -> Any:
    """Enable sync events and disable the Python event list, if this PyTorch version supports these options."""
    wanted: dict[str, Any] = {"enable_cuda_sync_events": torch.version.hip is None, "trace_only": True}
    known = _ExperimentalConfig.__init__.__doc__ or ""
    return _ExperimentalConfig(**{option: value for option, value in wanted.items() if option in known})
