"""Register edits, parse them from text such as ``scale(family=gemm, 0.5)``, and apply them one after another."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from tracekit.arrays import Floats
from tracekit.errors import WhatIfError
from tracekit.messages import Message
from tracekit.messages import what_ifs as messages
from tracekit.numbers import parse_number
from tracekit.program import Program
from tracekit.whatif.select import KernelSelection


@dataclass(frozen=True, slots=True)
class EditedProgram:
    """A program with one thing changed."""

    program: Program
    touched: int
    description: Message


EditFunction = Callable[[Program], EditedProgram]


def compute_saving_us(program: Program, edited: Program) -> float:
    """Compute how much shorter the step of ``edited`` is than that of ``program``; negative if it is longer.

    The median of steps that are each on the scale of its own measured time; negative for an edit that costs.
    """
    return compute_step_time_us(program) - compute_step_time_us(edited)


def compute_step_time_us(program: Program) -> float:
    """Compute the step time of a program on the scale of the measured one."""
    return program.replay_step_time_us(program.kernel_us)


def scale_kernel_times(program: Program, factor: Floats) -> Program:
    """Return the program with scaled kernel times.

    Args:
        program: The program.
        factor: By row of the kernel table; multiplied with the factors of earlier edits.
    """
    return replace(program, kernel_factor=program.kernel_factor * factor)


CALL_PATTERN = re.compile(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
ARGUMENT_PATTERN = re.compile(r"""\s*(?:(\w+)\s*=\s*)?("[^"]*"|'[^']*'|[^,"']*)\s*(?:,|$)""")


@dataclass(frozen=True, slots=True)
class EditArguments:
    """Arguments of an edit: positional ones in order, and those with a keyword."""

    positional: tuple[str, ...]
    keywords: Mapping[str, str]

    def get_kernels(self, *, words: int = 0) -> KernelSelection:
        """Return the keyword arguments as a selection of kernels, beside so many positional arguments."""
        return KernelSelection(dict(self.refuse_extra(words=words, keys=None).keywords))

    def get_number(self, default: float | None = None) -> float:
        """Return the only positional argument as a number."""
        if not self.positional and default is not None:
            return default
        return parse_number_of_edit(self.get_word("a number"))

    def get_word(self, what: str = "a word", default: str | None = None) -> str:
        """Return the only positional argument."""
        if len(self.positional) != 1 and (self.positional or default is None):
            raise WhatIfError(messages.EDIT_NEEDS_ARGUMENT(wanted=what, given=len(self.positional)))
        return self.positional[0] if self.positional else default or ""

    def refuse_extra(self, *, words: int = 0, keys: tuple[str, ...] | None = ()) -> "EditArguments":
        """Return these arguments; refuse those that the edit doesn't take."""
        unknown = [] if keys is None else [key for key in self.keywords if key not in keys]
        if len(self.positional) > words or unknown:
            more = [*unknown[:1], *self.positional[words:]][0]
            refused = messages.EDIT_SELECTION_UNKNOWN if keys is None else messages.EDIT_ARGUMENT_UNKNOWN
            raise WhatIfError(refused(argument=more))
        return self


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit that can be asked for by its name.

    Attributes:
        usage: How it is written: ``scale(KERNELS, FACTOR)``. ``KERNELS`` are ``key=pattern`` pairs.
        parse: Makes the edit of its arguments.
    """

    usage: str
    parse: Callable[[EditArguments], EditFunction]


EDITS: dict[str, Edit] = {}
"""The edits by name, filled by :func:`edit`."""

F = TypeVar("F", bound=Callable[..., EditedProgram])


def take_nothing(given: EditArguments) -> dict[str, Any]:
    """Refuse all arguments."""
    given.refuse_extra()
    return {}


def take_kernels(given: EditArguments) -> dict[str, Any]:
    """Take a selection of kernels alone, as the argument ``select``."""
    return {"select": given.get_kernels()}


def edit(usage: str, take: Callable[[EditArguments], Mapping[str, Any]] = take_nothing) -> Callable[[F], F]:
    """Register a function from a program to an edited one as the what-if edit that its usage begins with.

    Args:
        usage: How it is written.
        take: Returns the function's keyword arguments, of those in the text.
    """

    def register(function: F) -> F:
        EDITS[usage.partition("(")[0]] = Edit(usage, lambda given: partial(function, **take(given)))
        return function

    return register


def parse_edit(text: str) -> EditFunction:
    """Parse the text of an edit.

    Args:
        text: Such as ``scale(family=gemm, 0.5)``; a value with a comma or bracket stands in quotes.

    Raises:
        WhatIfError: There is no such edit, or its arguments are wrong.
    """
    call = CALL_PATTERN.fullmatch(text)
    name = call[1] if call else text
    if call is None and (begun := text.partition("(")[0].strip()) in EDITS:
        problem = messages.EDIT_BRACKET_MISSING()
        raise WhatIfError(messages.EDIT_MALFORMED(edit=text, error=problem, usage=EDITS[begun].usage))
    if call is None or name not in EDITS:
        raise WhatIfError(messages.EDIT_UNKNOWN(name=name, known=list(EDITS)))
    try:
        return EDITS[name].parse(_parse_arguments(call[2] or ""))
    except WhatIfError as error:
        wrong = messages.EDIT_MALFORMED(edit=text, error=error.catalogue_message, usage=EDITS[name].usage)
        raise WhatIfError(wrong) from None


def parse_edits(what_if: Sequence[str], host_speed: str | float | None = None) -> list[str]:
    """Return the requested edits in order; refuse invalid ones before a trace is read.

    Args:
        what_if: Edits such as ``no-sync(aten::item)``.
        host_speed: Speed of the host as a multiple of the measured one, or by kind of work: ``python=1.3,launch=1``.

    Raises:
        WhatIfError: An edit is unknown or malformed.
    """
    for edit in what_if:
        parse_edit(edit)
    if host_speed is None:
        return [*what_if]
    faster = f"host-speed({host_speed})"
    try:
        parse_edit(faster)
    except WhatIfError as error:
        cause = error.catalogue_message.values["error"]
        raise WhatIfError(messages.HOST_SPEED_MALFORMED(speed=str(host_speed), error=cause)) from None
    return [faster, *what_if]


def _parse_arguments(text: str) -> EditArguments:
    words: list[str] = []
    keyed: dict[str, str] = {}
    at = 0
    while text[at:].strip():
        found = ARGUMENT_PATTERN.match(text, at)
        if found is None:
            raise WhatIfError(messages.EDIT_UNREADABLE(rest=text[at:].strip()))
        value = found[2].strip()
        value = value[1:-1] if value[:1] in ("'", '"') else value
        if found[1]:
            keyed[found[1]] = value
        else:
            words.append(value)
        at = found.end()
    return EditArguments(tuple(words), keyed)


def parse_number_of_edit(word: str) -> float:
    """Parse a number among an edit's arguments.

    Raises:
        WhatIfError: It isn't one.
    """
    number = parse_number(word)
    if number is None:
        raise WhatIfError(messages.NUMBER_INVALID(word=word))
    return number


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

    Raises:
        WhatIfError: An edit is unknown or malformed, or finds nothing to change.
    """
    done: list[AppliedEdit] = []
    now_us = compute_step_time_us(program) if texts else 0.0
    for text, edited in zip(texts, edit_program(program, texts), strict=True):
        step_us = compute_step_time_us(edited.program)
        done.append(AppliedEdit(text, edited.program, edited.touched, edited.description, step_us, now_us - step_us))
        now_us = step_us
    return WhatIfResult(program, tuple(done))


def edit_program(program: Program, texts: Sequence[str]) -> Iterator[EditedProgram]:
    """Yield a program after each of some edits; arguments and errors as for :func:`apply_edits`."""
    for text, edit in [(text, parse_edit(text)) for text in texts]:
        edited = _apply_edit(text, edit, program)
        program = replace(edited.program, edits=(*program.edits, text))
        yield replace(edited, program=program)


def _apply_edit(text: str, edit: EditFunction, program: Program) -> EditedProgram:
    """Apply an edit to a program; name the edit in errors."""
    try:
        return edit(program)
    except WhatIfError as error:
        raise WhatIfError(messages.EDIT_REFUSED(edit=text, error=error.catalogue_message)) from None
