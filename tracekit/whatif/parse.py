"""Parse edits from text such as ``scale(family=gemm, 0.5)``."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tracekit.embedding_table_spec import parse_table_spec
from tracekit.errors import RequestError, WhatIfError
from tracekit.messages import what_ifs as messages
from tracekit.numbers import parse_number
from tracekit.whatif.collective import overlap, serialize
from tracekit.whatif.compile import REMAINING_HOST_FRACTION, compile_host_work
from tracekit.whatif.cuda_graph import cuda_graph
from tracekit.whatif.edited import EditedProgram, EditFunction
from tracekit.whatif.fuse import fuse
from tracekit.whatif.host_speed import check_speeds, host_speed
from tracekit.whatif.infinite_queue import infinite_queue
from tracekit.whatif.no_profiler import no_profiler
from tracekit.whatif.no_sync import no_sync
from tracekit.whatif.pin_memory import pin_memory
from tracekit.whatif.prefetch import prefetch
from tracekit.whatif.remove import remove
from tracekit.whatif.scale import scale
from tracekit.whatif.select import KernelSelection, check_pattern
from tracekit.whatif.tables import change_tables

HOST_WORK_KINDS = ("python", "op", "launch")

CALL_PATTERN = re.compile(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
ARGUMENT_PATTERN = re.compile(r"""\s*(?:(\w+)\s*=\s*)?("[^"]*"|'[^']*'|[^,"']*)\s*(?:,|$)""")


@dataclass(frozen=True, slots=True)
class EditArguments:
    """Arguments of an edit: positional ones in order, and those with a keyword."""

    positional: tuple[str, ...]
    keywords: Mapping[str, str]

    def to_selection(self) -> KernelSelection:
        """Return the keyword arguments as a selection of kernels."""
        return KernelSelection(dict(self.keywords))

    def get_number(self, default: float | None = None) -> float:
        """Return the only positional argument as a number."""
        if not self.positional and default is not None:
            return default
        return _parse_number(self.get_word("a number"))

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


def _parse_scale(given: EditArguments) -> EditFunction:
    given.refuse_extra(words=1, keys=None)
    return partial(scale, select=given.to_selection(), factor=given.get_number())


def _make_selection_parser(edit: Callable[..., EditedProgram]) -> Callable[[EditArguments], EditFunction]:
    return lambda given: partial(edit, select=given.refuse_extra(keys=None).to_selection())


def _parse_no_sync(given: EditArguments) -> EditFunction:
    call = given.refuse_extra(words=1).get_word(default="")
    check_pattern(call)
    return partial(no_sync, call=call)


def _parse_tables(given: EditArguments) -> EditFunction:
    text = given.refuse_extra(words=1).get_word("a table, such as 40Mx128:20")
    try:
        return partial(change_tables, spec=parse_table_spec(text), keeps_pooling=":" not in text)
    except RequestError as error:
        raise WhatIfError(error.catalogue_message) from error


def _parse_compile(given: EditArguments) -> EditFunction:
    given.refuse_extra(words=1, keys=None)
    return partial(compile_host_work, select=given.to_selection(), host=given.get_number(REMAINING_HOST_FRACTION))


def _parse_host_speed(given: EditArguments) -> EditFunction:
    given.refuse_extra(words=1, keys=HOST_WORK_KINDS)
    every = given.get_number(1.0) if given.keywords else given.get_number()
    python, op, launch = (
        _parse_number(given.keywords[key]) if key in given.keywords else every for key in HOST_WORK_KINDS
    )
    check_speeds(python, op, launch)
    return partial(host_speed, python=python, op=op, launch=launch)


def _make_plain_parser(edit: EditFunction) -> Callable[[EditArguments], EditFunction]:
    def read(given: EditArguments) -> EditFunction:
        given.refuse_extra()
        return edit

    return read


EDITS: Mapping[str, tuple[str, Callable[[EditArguments], EditFunction]]] = {
    "scale": ("scale(KERNELS, FACTOR)", _parse_scale),
    "remove": ("remove(KERNELS)", _make_selection_parser(remove)),
    "fuse": ("fuse(KERNELS)", _make_selection_parser(fuse)),
    "cuda-graph": ("cuda-graph(KERNELS)", _make_selection_parser(cuda_graph)),
    "compile": ("compile(KERNELS, HOST)", _parse_compile),
    "no-sync": ("no-sync(CALL)", _parse_no_sync),
    "no-profiler": ("no-profiler()", _make_plain_parser(no_profiler)),
    "pin-memory": ("pin-memory(KERNELS)", _make_selection_parser(pin_memory)),
    "prefetch": ("prefetch()", _make_plain_parser(prefetch)),
    "infinite-queue": ("infinite-queue()", _make_plain_parser(infinite_queue)),
    "overlap": ("overlap(KERNELS)", _make_selection_parser(overlap)),
    "serialize": ("serialize(KERNELS)", _make_selection_parser(serialize)),
    "tables": ("tables(ROWSxWIDTH[:POOLING[:ALPHA]])", _parse_tables),
    "host-speed": ("host-speed(SPEED) or host-speed(python=SPEED, op=SPEED, launch=SPEED)", _parse_host_speed),
}
"""Name of each edit to its usage and the parser of its arguments. ``KERNELS`` are ``key=pattern`` pairs."""


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
        raise WhatIfError(messages.EDIT_MALFORMED(edit=text, error=problem, usage=EDITS[begun][0]))
    if call is None or name not in EDITS:
        raise WhatIfError(messages.EDIT_UNKNOWN(name=name, known=list(EDITS)))
    usage, reader = EDITS[name]
    try:
        return reader(_parse_arguments(call[2] or ""))
    except WhatIfError as error:
        raise WhatIfError(messages.EDIT_MALFORMED(edit=text, error=error.catalogue_message, usage=usage)) from None


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


def _parse_number(word: str) -> float:
    number = parse_number(word)
    if number is None:
        raise WhatIfError(messages.NUMBER_INVALID(word=word))
    return number
