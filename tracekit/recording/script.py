"""Records a script that knows nothing of profilers: its steps are told from the optimizer or the model."""

import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from tracekit.errors import TracekitError
from tracekit.recording.recorder import Recording, RecordingError


class StepEnd(StrEnum):
    """What ends a step."""

    AUTO = "auto"
    OPTIMIZER = "optimizer"
    FORWARD = "forward"


class _Finished(SystemExit):
    """Ends the script: its trace is complete."""


def run(
    script: str,
    arguments: Sequence[str],
    recording: Recording,
    *,
    as_module: bool = False,
    step_end: StepEnd = StepEnd.AUTO,
    keep_running: bool = False,
) -> None:
    """Run a script as Python would, and record it.

    Args:
        script: Its path, or the name of a module.
        arguments: What it finds in ``sys.argv`` after its own name.
        recording: Where to.
        as_module: Whether ``script`` is a module, as after ``python -m``.
        step_end: What ends a step: an ``optimizer.step()``, a call of the first model that the script calls, or what
            of both it turns out to do.
        keep_running: Whether the script goes on after its trace is complete.

    Raises:
        RecordingError: There is no such script, or it took too few steps.
        SystemExit: The script ended with an exit code; after an error of its own, which is printed, with 1.
    """
    if not as_module and not Path(script).is_file():
        raise RecordingError(f"{script}: there is no such script.", "A module is named with -m.")

    def end_step() -> None:
        recording.step()
        if recording.is_complete and not keep_running:
            raise _Finished(0)

    with recording, _arguments(script, arguments, as_module), _hooks(end_step, step_end) as steps:
        try:
            if as_module:
                runpy.run_module(script, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(script, run_name="__main__")
        except _Finished:
            pass
        except SystemExit as end:
            if end.code:
                raise
        except TracekitError:
            raise
        except Exception as error:
            _print(error)
            raise SystemExit(1) from error
        steps.check(recording.steps_seen)


def _print(error: Exception) -> None:
    """What Python prints of a script's error: where it arose in the script, and in what that calls."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_globals.get("__name__") in (__name__, "runpy"):
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames))


@contextmanager
def _arguments(script: str, arguments: Sequence[str], as_module: bool) -> Iterator[None]:
    """``sys.argv`` and ``sys.path`` as the script would find them."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path.cwd() if as_module else Path(script).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


@contextmanager
def _hooks(end_step: Callable[[], None], step_end: StepEnd) -> Iterator["_Steps"]:
    """Calls ``end_step`` at the end of every step while it lasts."""
    steps = _Steps(end_step, step_end)
    try:
        yield steps
    finally:
        steps.remove()


class _Steps:
    """Watches optimizers and the first model that is called.

    A hook on every module would slow each call down, so only the outermost one keeps a hook.
    """

    def __init__(self, end_step: Callable[[], None], step_end: StepEnd) -> None:
        self._end_step = end_step
        self._optimizer: torch.optim.Optimizer | None = None
        self._kept_gradients = False
        self._handles: dict[str, Any] = {}
        if step_end is not StepEnd.FORWARD:
            self._handles["optimizer"] = register_optimizer_step_post_hook(self._after_optimizer)
        if step_end is not StepEnd.OPTIMIZER:
            self._always = step_end is StepEnd.FORWARD
            self._handles["first call"] = register_module_forward_pre_hook(self._at_first_call)

    def check(self, ended: int) -> None:
        """Whether steps ended, so many of them, as far as the model was called.

        Raises:
            RecordingError: None did, as all calls kept gradients.
        """
        if self._kept_gradients and not ended:
            raise RecordingError(
                "No optimizer stepped, and the calls of the model kept gradients as in training: no step ended.",
                "Say --step-end forward, or run the inference under torch.no_grad().",
            )

    def remove(self) -> None:
        """Leave PyTorch as it was."""
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()

    def _forget(self, name: str) -> None:
        if name in self._handles:
            self._handles.pop(name).remove()

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """Of several optimizers the first one's step counts."""
        self._forget("first call")
        self._forget("model")
        if self._optimizer in (None, optimizer):
            self._optimizer = optimizer
            self._end_step()

    def _at_first_call(self, model: nn.Module, args: object) -> None:
        self._forget("first call")
        self._handles["model"] = model.register_forward_hook(self._after_forward)

    def _after_forward(self, model: nn.Module, args: object, output: object) -> None:
        """A pass that keeps no gradients is a whole step."""
        if self._always or not torch.is_grad_enabled():
            self._end_step()
        else:
            self._kept_gradients = True
