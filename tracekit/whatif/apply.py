"""Apply edits one after another and measure what each saves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tracekit.errors import WhatIfError
from tracekit.messages import Message
from tracekit.messages.what_ifs import EDIT_REFUSED
from tracekit.run import MeasuredRun
from tracekit.whatif.edited import EditedRun, EditFunction, compute_step_time_us
from tracekit.whatif.parse import parse_edit


@dataclass(frozen=True, slots=True)
class AppliedEdit:
    """One edit, applied to the result of the edits before it.

    Attributes:
        text: The edit as the user wrote it.
        run: The run with this edit.
        touched: Number of kernels, calls or edges it changed.
        description: What changed.
        step_time_us: Step time with this edit and those before it, on the scale of the measured step.
        saving_us: Step time that this edit saves; negative if the step becomes longer.
    """

    text: str
    run: MeasuredRun
    touched: int
    description: Message
    step_time_us: float
    saving_us: float


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """A sequence of edits of a run.

    Attributes:
        original_run: The run without edits.
        edits: The edits; their savings add up to :attr:`saving_us`.
    """

    original_run: MeasuredRun
    edits: tuple[AppliedEdit, ...]

    @property
    def run(self) -> MeasuredRun:
        """The run with all edits."""
        return self.edits[-1].run if self.edits else self.original_run

    @property
    def saving_us(self) -> float:
        """Step time that all edits together save."""
        return sum(edit.saving_us for edit in self.edits)


def apply_edits(run: MeasuredRun, texts: Sequence[str]) -> WhatIfResult:
    """Apply edits to a run, each to the result of those before it.

    Args:
        run: The run.
        texts: The edits, in the syntax of :func:`tracekit.whatif.parse.parse_edit`.

    Raises:
        WhatIfError: An edit is unknown or malformed, or finds nothing to change.
    """
    edits = [parse_edit(text) for text in texts]
    done: list[AppliedEdit] = []
    now, now_us = run, compute_step_time_us(run)
    for text, edit in zip(texts, edits, strict=True):
        edited = _apply_edit(text, edit, now)
        left = replace(edited.run, edits=(*now.edits, text))
        step_us = compute_step_time_us(left)
        done.append(AppliedEdit(text, left, edited.touched, edited.description, step_us, now_us - step_us))
        now, now_us = left, step_us
    return WhatIfResult(run, tuple(done))


def _apply_edit(text: str, edit: EditFunction, run: MeasuredRun) -> EditedRun:
    """Apply an edit to a run; name the edit in errors."""
    try:
        return edit(run)
    except WhatIfError as error:
        raise WhatIfError(EDIT_REFUSED(edit=text, error=error.catalogue_message)) from None
