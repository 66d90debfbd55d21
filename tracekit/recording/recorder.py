"""The recorder: counts a program's steps, and runs the profiler over some of them."""

import atexit
import json
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, schedule

from tracekit.errors import TracekitError
from tracekit.recording import facts
from tracekit.recording.clock import StepClock
from tracekit.recording.plan import Plan

P = ParamSpec("P")
R = TypeVar("R")

METADATA_KEY = "tracekit"


class RecordingError(TracekitError):
    """Nothing was recorded, or it can't be written."""


class Recording:
    """Records some steps of a program: a context manager whose :meth:`step` ends each, or a decorator of a step.

    After the last recorded step it is idle, and the program goes on at its own speed.

    Args:
        folder: Where the trace goes, a file per rank.
        name: The file's name without suffixes.
        plan: How many steps are skipped, timed and recorded.
        overwrite: Whether a trace of that name may be replaced.
        quiet: Whether to say nothing on stderr.

    Raises:
        RecordingError: A trace of that name is there already, or the folder can't be made.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] = "traces",
        *,
        name: str = "trace",
        plan: Plan | None = None,
        overwrite: bool = False,
        quiet: bool = False,
    ) -> None:
        self.plan = plan or Plan()
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
        """The trace that was written; ``None`` until then."""
        return self._path

    @property
    def is_complete(self) -> bool:
        """Whether all steps that were to be recorded are."""
        return self.steps_seen >= self.plan.total

    def __enter__(self) -> Self:
        """Begin counting steps."""
        self._check_folder()
        self._say(str(self.plan))
        if not torch.cuda.is_available():
            self._say("PyTorch finds no GPU on this machine: nothing can be predicted from what is recorded here")
        self._is_open = True
        atexit.register(self._at_exit)
        self._before(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what was recorded if the program ended early, and grade it.

        Raises:
            RecordingError: The program took too few steps to record any.
        """
        self._end()
        if self._path is not None:
            self._grade(self._path)
        elif error is None:
            raise self._too_few()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """A function each of whose calls is a step; the trace is written as soon as enough of them were made.

        Where the program ends before that, what was recorded until then.
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
        """A step ends here."""
        if self.is_complete:
            return
        self.steps_seen += 1
        if self._profiler is not None:
            if self.is_complete:
                self._close()
                return
            self._profiler.step()
        self._before(self.steps_seen)

    def _at_exit(self) -> None:
        """A profiler that still runs when Python ends takes the process down with it."""
        self._end()
        if self._path is None:
            self._say(str(self._too_few()))

    def _end(self) -> None:
        self._is_open = False
        atexit.unregister(self._at_exit)
        if self._profiler is not None:
            self._close()

    def _too_few(self) -> RecordingError:
        needed = self.plan.recorded_from + 1
        return RecordingError(
            f"The program took {self.steps_seen} steps, and recording begins with step {needed}.",
            "Let it take more, or record earlier: wait=1, timed=0, warmup=1, active=1 takes three.",
        )

    def _before(self, step: int) -> None:
        plan = self.plan
        if plan.timed and plan.wait <= step <= plan.profiled_from:
            self._clock.mark()
        if step == plan.profiled_from:
            self._step_times_us = self._clock.steps_us()
            self._open_profiler()

    def _open_profiler(self) -> None:
        """Its own schedule is told one step more than is recorded, so that only :meth:`_close` ends the recording."""
        self._facts = facts.collect() | {"unprofiled_step_us": self._step_times_us}
        facts.forget_peak()
        self._profiler = profile(
            activities=_activities(),
            schedule=schedule(wait=0, warmup=self.plan.warmup, active=self.plan.active + 1, repeat=1),
            record_shapes=True,
            on_trace_ready=self._write,
            experimental_config=_experimental(),
        )
        self._profiler.start()

    def _close(self) -> None:
        """End the recording; the profiler writes if it had come to record."""
        profiler = self._profiler
        assert profiler is not None
        self._profiler = None
        if self.steps_seen > self.plan.recorded_from:
            profiler.add_metadata_json(METADATA_KEY, json.dumps(self._facts | {"memory": facts.memory()}))
        else:
            profiler.on_trace_ready = None
        profiler.stop()

    def _write(self, profiler: profile) -> None:
        path = self._target()
        partial = path.with_name(f".{os.getpid()}.{path.name}")
        try:
            profiler.export_chrome_trace(str(partial))
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise RecordingError(f"{path} can't be written: {error.strerror}.", "Is the disk full?") from error
        self._path = path
        self._say(f"wrote {path}, {path.stat().st_size / 1e3:,.0f} kB{self._timing()}")

    def _timing(self) -> str:
        if not self._step_times_us:
            return ""
        times = sorted(self._step_times_us)
        return f"; a step takes {times[len(times) // 2] / 1e3:.3g} ms without the profiler"

    def _check_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordingError(f"{self._folder} can't be made: {error.strerror}.") from error
        if self._target().exists() and not self._overwrite:
            hint = "Choose another folder, or overwrite it: --force in front of the script, overwrite=True in Python."
            raise RecordingError(f"{self._target()} exists already.", hint)

    def _target(self) -> Path:
        rank = _rank()
        return self._folder / (f"{self._name}.json.gz" if rank is None else f"{self._name}_rank{rank}.json.gz")

    def _grade(self, path: Path) -> None:
        """What ``tracekit doctor`` says, on the first rank, where tracekit's own requirements are installed."""
        if self._quiet or _rank():
            return
        try:
            from tracekit.doctor import examine
            from tracekit.ingest import load
            from tracekit.replay.run import prepare
        except ImportError:
            self._say(f"see how good it is where tracekit is installed: tracekit doctor {path}")
            return
        try:
            trace = load(str(path), cache=False)
            diagnosis = examine(trace, prepare(trace))
        except TracekitError as error:
            self._say(str(error))
            return
        best = f": {diagnosis.best.fix}" if diagnosis.best else ""
        self._say(f"grade {diagnosis.grade}{best}")

    def _say(self, text: str) -> None:
        if not self._quiet and not _rank():
            print(f"tracekit: {text}", file=sys.stderr)  # noqa: T201


def _rank() -> int | None:
    """Rank in a distributed job; ``None`` outside one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ["RANK"]) if os.environ.get("RANK", "").isdigit() else None


def _activities() -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]


def _experimental() -> Any:
    """Recorded waits and no event list in Python, where this PyTorch knows them."""
    wanted: dict[str, Any] = {"enable_cuda_sync_events": torch.version.hip is None, "trace_only": True}
    known = _ExperimentalConfig.__init__.__doc__ or ""
    return _ExperimentalConfig(**{option: value for option, value in wanted.items() if option in known})
