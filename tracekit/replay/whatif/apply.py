"""Edits one after the other, and what each of them saves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tracekit.errors import WhatIfError
from tracekit.replay.run import Run
from tracekit.replay.whatif.edited import Edit, Edited, step_time_us
from tracekit.replay.whatif.read import read


@dataclass(frozen=True, slots=True)
class Applied:
    """One edit, applied to what the edits before it left.

    Attributes:
        text: The edit as it was written.
        run: The run with it.
        touched: How many kernels, calls or edges it changed.
        description: What happened to them.
        step_time_us: The step with this edit and those before it, on the scale of the measured step.
        saving_us: By how much this edit shortened it; negative for an edit that costs.
    """

    text: str
    run: Run
    touched: int
    description: str
    step_time_us: float
    saving_us: float


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Edits of a run, in order.

    Attributes:
        before: The run without them.
        edits: The edits; their savings add up to :attr:`saving_us`.
    """

    before: Run
    edits: tuple[Applied, ...]

    @property
    def run(self) -> Run:
        """The run with all edits."""
        return self.edits[-1].run if self.edits else self.before

    @property
    def saving_us(self) -> float:
        """How much all edits together shorten the step."""
        return sum(edit.saving_us for edit in self.edits)


def apply(run: Run, texts: Sequence[str]) -> WhatIf:
    """Apply edits to a run, each to what those before it left.

    Args:
        run: The run.
        texts: The edits, as :func:`tracekit.replay.whatif.read.read` takes them.

    Raises:
        WhatIfError: An edit is unknown or wrongly written, or finds nothing to change.
    """
    edits = [read(text) for text in texts]
    done: list[Applied] = []
    now, now_us = run, step_time_us(run)
    for text, edit in zip(texts, edits, strict=True):
        edited = _try(text, edit, now)
        left = replace(edited.run, edits=(*now.edits, text))
        step_us = step_time_us(left)
        done.append(Applied(text, left, edited.touched, edited.description, step_us, now_us - step_us))
        now, now_us = left, step_us
    return WhatIf(run, tuple(done))


def _try(text: str, edit: Edit, run: Run) -> Edited:
    """An edit of a run; errors say which edit it was."""
    try:
        return edit(run)
    except WhatIfError as error:
        raise WhatIfError(f"--what-if '{text}': {error.message}", error.hint) from None
