"""Data classes of findings."""

from dataclasses import dataclass

from tracekit.messages import Message


@dataclass(frozen=True, slots=True)
class Evidence:
    """One row that shows the finding.

    Attributes:
        what: An op with its shapes, a call, or a step.
        time_us: Its time per step; ``None`` if that isn't meaningful.
        detail: What is wrong with it, or how often it happens; ``None`` if its time says all.
    """

    what: str
    time_us: float | None
    detail: Message | None = None


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The resource that takes most of a target's critical path.

    Attributes:
        limit: ``host``, ``communication``, ``gpu``, ``latency`` or ``unexplained``.
        share: Percent of the target's critical path.
        share_here: Percent of the measured step's critical path; None where nothing was measured.
    """

    limit: str
    share: float
    share_here: float | None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that limits the step or that the reader must know.

    Attributes:
        message: What it is; its hint is what to try.
        saves_us: Step time that it would save, by replay; ``None`` if unknown.
        evidence: The rows that show it, longest first.
        on: The target it applies to; ``None`` for the measured run.
        bottleneck: The resource that limits this target, if that is the finding.
        parts: Names of the parts of the measured step that it is about as a whole.
    """

    message: Message
    saves_us: float | None
    evidence: tuple[Evidence, ...] = ()
    on: str | None = None
    bottleneck: Bottleneck | None = None
    parts: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """Stable name for programs and tests."""
        return self.message.code

    @property
    def title(self) -> str:
        """One sentence with numbers."""
        return self.message.render_text()

    @property
    def advice(self) -> str:
        """What to try."""
        return self.message.render_hint()
