"""Record a script without changing it: the steps are detected from its optimizer or model."""

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
from tracekit.messages import recordings as messages
from tracekit.recording.recorder import Recording, RecordingError


class StepEnd(StrEnum):
    """The event that ends a step."""

    AUTO = "auto"
    OPTIMIZER = "optimizer"
    FORWARD = "forward"


class _RecordingFinished(SystemExit):
    """Raised to end the script once its trace is complete."""


def run_script(
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
        arguments: The script's ``sys.argv`` after its own name.
        recording: The recording that counts the steps.
        as_module: Whether ``script`` is a module, as after ``python -m``.
        step_end: The event that ends a step: an ``optimizer.step()``, a call of the first model that the script
            calls, or automatically one of the two.
        keep_running: Whether the script continues after its trace is complete.

    Raises:
        RecordingError: There is no such script, or it took too few steps.
        SystemExit: The script ended with an exit code; with 1 after an error of its own, which is printed.
    """
    if not as_module and not Path(script).is_file():
        raise RecordingError(messages.SCRIPT_NOT_FOUND(script=script))

    def end_step() -> None:
        recording.step()
        if recording.is_complete and not keep_running:
            raise _RecordingFinished(0)

    with recording, _replace_argv(script, arguments, as_module), _install_hooks(end_step, step_end) as steps:
        try:
            if as_module:
                runpy.run_module(script, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(script, run_name="__main__")
        except _RecordingFinished:
            pass
        except SystemExit as end:
            if end.code:
                raise
        except TracekitError:
            raise
        except Exception as error:
            _print_script_error(error)
            raise SystemExit(1) from error
        steps.check_step_count(recording.steps_seen)


def _print_script_error(error: Exception) -> None:
    """Print a script's error as Python would, without the frames of tracekit and ``runpy``."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_globals.get("__name__") in (__name__, "runpy"):
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames))


@contextmanager
def _replace_argv(script: str, arguments: Sequence[str], as_module: bool) -> Iterator[None]:
    """Set ``sys.argv`` and ``sys.path`` as the script expects them, and restore them afterwards."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path.cwd() if as_module else Path(script).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


@contextmanager
def _install_hooks(end_step: Callable[[], None], step_end: StepEnd) -> Iterator["_StepWatcher"]:
    """Call ``end_step`` at the end of every step while the context lasts."""
    steps = _StepWatcher(end_step, step_end)
    try:
        yield steps
    finally:
        steps.remove_hooks()


class _StepWatcher:
    """Watches optimizers and the first model that is called.

    A hook on every module would slow down each call, so only the outermost module keeps a hook.
    """

    def __init__(self, end_step: Callable[[], None], step_end: StepEnd) -> None:
        self._end_step = end_step
        self._optimizer: torch.optim.Optimizer | None = None
        self._kept_gradients = False
        self._handles: dict[str, Any] = {}
        if step_end is not StepEnd.FORWARD:
            self._handles["optimizer"] = register_optimizer_step_post_hook(self._on_optimizer_step)
        if step_end is not StepEnd.OPTIMIZER:
            self._always = step_end is StepEnd.FORWARD
            self._handles["first call"] = register_module_forward_pre_hook(self._on_first_call)

    def check_step_count(self, ended: int) -> None:
        """Check that steps ended if the model was called.

        Raises:
            RecordingError: No step ended, as all calls kept gradients.
        """
        if self._kept_gradients and not ended:
            raise RecordingError(messages.STEPS_NOT_ENDED())

    def remove_hooks(self) -> None:
        """Remove all hooks."""
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()

    def _remove_hook(self, name: str) -> None:
        if name in self._handles:
            self._handles.pop(name).remove()

    def _on_optimizer_step(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """End a step if this is the first optimizer; further optimizers don't count."""
        self._remove_hook("first call")
        self._remove_hook("model")
        if self._optimizer in (None, optimizer):
            self._optimizer = optimizer
            self._end_step()

    def _on_first_call(self, model: nn.Module, args: object) -> None:
        self._remove_hook("first call")
        self._handles["model"] = model.register_forward_hook(self._on_forward_end)

    def _on_forward_end(self, model: nn.Module, args: object, output: object) -> None:
        """End a step after a forward pass that keeps no gradients."""
        if self._always or not torch.is_grad_enabled():
            self._end_step()
        else:
            self._kept_gradients = True
