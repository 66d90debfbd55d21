"""Edits as text: ``scale(family=gemm, 0.5)``."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tracekit.errors import WhatIfError
from tracekit.replay.whatif.collective import overlap, serialize
from tracekit.replay.whatif.compile import HOST, compiled
from tracekit.replay.whatif.cuda_graph import cuda_graph
from tracekit.replay.whatif.edited import Edit, Edited
from tracekit.replay.whatif.fuse import fuse
from tracekit.replay.whatif.host import check_speeds, host_speed
from tracekit.replay.whatif.infinite_queue import infinite_queue
from tracekit.replay.whatif.no_profiler import no_profiler
from tracekit.replay.whatif.no_sync import no_sync
from tracekit.replay.whatif.pin_memory import pin_memory
from tracekit.replay.whatif.prefetch import prefetch
from tracekit.replay.whatif.remove import remove
from tracekit.replay.whatif.scale import scale
from tracekit.replay.whatif.select import Select, check_pattern

HOST_CLASSES = ("python", "op", "launch")

CALL = re.compile(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
ARGUMENT = re.compile(r"""\s*(?:(\w+)\s*=\s*)?("[^"]*"|'[^']*'|[^,"']*)\s*(?:,|$)""")


@dataclass(frozen=True, slots=True)
class Arguments:
    """What stands between the brackets: words in order, and words with a key."""

    words: tuple[str, ...]
    keyed: Mapping[str, str]

    def select(self) -> Select:
        """The keyed words as a selection of kernels."""
        return Select(dict(self.keyed))

    def number(self, default: float | None = None) -> float:
        """The one word without a key as a number."""
        if not self.words and default is not None:
            return default
        return _number(self.word("a number"))

    def word(self, what: str = "a word", default: str | None = None) -> str:
        """The one word without a key."""
        if len(self.words) != 1 and (self.words or default is None):
            raise WhatIfError(f"needs {what}, has {len(self.words) or 'none'}.")
        return self.words[0] if self.words else default or ""

    def only(self, *, words: int = 0, keys: tuple[str, ...] | None = ()) -> "Arguments":
        """These arguments, once it is known that there is no more to them than an edit takes."""
        unknown = [] if keys is None else [key for key in self.keyed if key not in keys]
        if len(self.words) > words or unknown:
            more = [*unknown[:1], *self.words[words:]][0]
            kernels = " Kernels are named by key=pattern, such as family=gemm." if keys is None else ""
            raise WhatIfError(f"does not take {more!r}.{kernels}")
        return self


def _scale(given: Arguments) -> Edit:
    given.only(words=1, keys=None)
    return partial(scale, select=given.select(), factor=given.number())


def _of_selection(edit: Callable[..., Edited]) -> Callable[[Arguments], Edit]:
    return lambda given: partial(edit, select=given.only(keys=None).select())


def _no_sync(given: Arguments) -> Edit:
    call = given.only(words=1).word(default="")
    check_pattern(call)
    return partial(no_sync, call=call)


def _compile(given: Arguments) -> Edit:
    given.only(words=1, keys=None)
    return partial(compiled, select=given.select(), host=given.number(HOST))


def _host_speed(given: Arguments) -> Edit:
    given.only(words=1, keys=HOST_CLASSES)
    every = given.number(1.0) if given.keyed else given.number()
    python, op, launch = (_number(given.keyed[key]) if key in given.keyed else every for key in HOST_CLASSES)
    check_speeds(python, op, launch)
    return partial(host_speed, python=python, op=op, launch=launch)


def _alone(edit: Edit) -> Callable[[Arguments], Edit]:
    def read(given: Arguments) -> Edit:
        given.only()
        return edit

    return read


EDITS: Mapping[str, tuple[str, Callable[[Arguments], Edit]]] = {
    "scale": ("scale(KERNELS, FACTOR)", _scale),
    "remove": ("remove(KERNELS)", _of_selection(remove)),
    "fuse": ("fuse(KERNELS)", _of_selection(fuse)),
    "cuda-graph": ("cuda-graph(KERNELS)", _of_selection(cuda_graph)),
    "compile": ("compile(KERNELS, HOST)", _compile),
    "no-sync": ("no-sync(CALL)", _no_sync),
    "no-profiler": ("no-profiler()", _alone(no_profiler)),
    "pin-memory": ("pin-memory(KERNELS)", _of_selection(pin_memory)),
    "prefetch": ("prefetch()", _alone(prefetch)),
    "infinite-queue": ("infinite-queue()", _alone(infinite_queue)),
    "overlap": ("overlap(KERNELS)", _of_selection(overlap)),
    "serialize": ("serialize(KERNELS)", _of_selection(serialize)),
    "host-speed": ("host-speed(SPEED) or host-speed(python=SPEED, op=SPEED, launch=SPEED)", _host_speed),
}
"""Name of an edit to how it is written, and what reads its arguments. ``KERNELS`` are ``key=pattern`` pairs."""


def read(text: str, option: str = "", form: str = "") -> Edit:
    """The edit that a text means.

    Args:
        text: Such as ``scale(family=gemm, 0.5)``; a value with a comma or bracket stands in quotes.
        option: What was given, where that wasn't a ``--what-if``, for messages.
        form: How that is written.

    Raises:
        WhatIfError: There is no such edit, or its arguments are wrong.
    """
    call = CALL.fullmatch(text)
    name = call[1] if call else text
    if call is None and (begun := text.partition("(")[0].strip()) in EDITS:
        raise WhatIfError(f"--what-if {text!r} doesn't end with its bracket.", f"Write {EDITS[begun][0]}.")
    if call is None or name not in EDITS:
        raise WhatIfError(f"there is no what-if edit {name!r}.", f"Known: {', '.join(EDITS)}.")
    usage, reader = EDITS[name]
    try:
        return reader(_arguments(call[2] or ""))
    except WhatIfError as error:
        said = option or f"--what-if '{text}'"
        raise WhatIfError(f"{said}: {error.message}", error.hint or f"Write {form or usage}.") from None


def _arguments(text: str) -> Arguments:
    words: list[str] = []
    keyed: dict[str, str] = {}
    at = 0
    while text[at:].strip():
        found = ARGUMENT.match(text, at)
        if found is None:
            raise WhatIfError(f"can't be read from {text[at:].strip()!r} on.")
        value = found[2].strip()
        value = value[1:-1] if value[:1] in ("'", '"') else value
        if found[1]:
            keyed[found[1]] = value
        else:
            words.append(value)
        at = found.end()
    return Arguments(tuple(words), keyed)


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise WhatIfError(f"{word!r} is no number.") from None
