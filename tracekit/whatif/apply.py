"""Apply edits one after another and measure what each saves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tracekit.errors import WhatIfError
from tracekit.messages import Message
from tracekit.messages.what_ifs import EDIT_REFUSED
from tracekit.program import Program
from tracekit.whatif.edited import EditedProgram, EditFunction, compute_step_time_us
from tracekit.whatif.parse import parse_edit


@dataclass(frozen=True, slots=True)
class AppliedEdit:
    """One edit, applied to the result of the edits before it.

    Attributes:
        text: The edit as the user wrote it.
        program: The program with this edit.
        touched: Number of kernels, calls or edges it changed.
        description: What changed.
        step_time_us: Step time with this edit and those before it, on the scale of the measured step.
        saving_us: Step time that this edit saves; negative if the step becomes longer.
    """

    text: str
    program: Program
    touched: int
    description: Message
    step_time_us: float
    saving_us: float


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """A sequence of edits of a program.

    Attributes:
        original: The program without edits.
        edits: The edits; their savings add up to :attr:`saving_us`.
    """

    original: Program
    edits: tuple[AppliedEdit, ...]

    @property
    def program(self) -> Program:
        """The program with all edits."""
        return self.edits[-1].program if self.edits else self.original

    @property
    def saving_us(self) -> float:
        """Step time that all edits together save."""
        return sum(edit.saving_us for edit in self.edits)


def apply_edits(program: Program, texts: Sequence[str]) -> WhatIfResult:
    """Apply edits to a program, each to the result of those before it.

    Args:
        program: The program.
        texts: The edits, in the syntax of :func:`tracekit.whatif.parse.parse_edit`.

    Raises:
        WhatIfError: An edit is unknown or malformed, or finds nothing to change.
    """
    edits = [parse_edit(text) for text in texts]
    done: list[AppliedEdit] = []
    now, now_us = program, compute_step_time_us(program)
    for text, edit in zip(texts, edits, strict=True):
        edited = _apply_edit(text, edit, now)
        left = replace(edited.program, edits=(*now.edits, text))
        step_us = compute_step_time_us(left)
        done.append(AppliedEdit(text, left, edited.touched, edited.description, step_us, now_us - step_us))
        now, now_us = left, step_us
    return WhatIfResult(program, tuple(done))


def _apply_edit(text: str, edit: EditFunction, program: Program) -> EditedProgram:
    """Apply an edit to a program; name the edit in errors."""
    try:
        return edit(program)
    except WhatIfError as error:
        raise WhatIfError(EDIT_REFUSED(edit=text, error=error.catalogue_message)) from None
