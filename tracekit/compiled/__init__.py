"""Inner loops as machine code: from the library in the wheel, or else compiled where they run.

A wheel of a platform brings the code along (:func:`.units.find_prebuilt`). Elsewhere, as in a checkout, numba compiles
it (:mod:`.just_in_time`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import Lock
from typing import Generic, ParamSpec, get_type_hints

from tracekit.arrays import Bytes, Floats, Ints
from tracekit.compiled.units import BYTE_ARRAY, FLOAT_ARRAY, INT_ARRAY, INTEGER, Functions, Unit, find_prebuilt
from tracekit.errors import TracekitError
from tracekit.messages import ProgressCallback
from tracekit.messages.requests import COMPILING_LOOPS, EXTRA_MISSING

P = ParamSpec("P")

_KINDS = {int: INTEGER, Ints: INT_ARRAY, Floats: FLOAT_ARRAY, Bytes: BYTE_ARRAY}


def compile_lazily(function: Callable[P, int]) -> Callable[P, int]:
    """Compile a loop when it is first called.

    Args:
        function: Calls no other function of ours. Its parameters are integers and contiguous arrays; arrays have no
            length or shape inside, only elements. It writes its results into arrays and returns an integer.
    """
    return CompiledLoop(function)


class CompiledLoop(Generic[P]):
    """A compiled function, which releases the GIL.

    Args:
        function: See :func:`compile_lazily`.
    """

    def __init__(self, function: Callable[P, int]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self._lock = Lock()
        self._linked: Functions | None = None

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> int:
        """Run the loop."""
        with self._lock:
            self._linked = self._linked or load_unit(self.describe_unit())
        result: int = self._linked[self.function.__name__](*arguments, **named)
        return result

    def describe_unit(self) -> Unit:
        """Describe what is to be compiled, with the present values of the module's constants."""
        name, code = self.function.__name__, self.function.__code__
        used = {name: self.function.__globals__.get(name) for name in code.co_names}
        constants = {name: value for name, value in used.items() if isinstance(value, int | float)}
        hints = get_type_hints(self.function)
        kinds = tuple(_KINDS[hints[parameter]] for parameter in code.co_varnames[: code.co_argcount])
        source = Path(code.co_filename).read_text(encoding="utf-8")
        return Unit(name, (source, repr(constants)), {name: kinds}, lambda: {name: self.function})


def load_unit(unit: Unit) -> Functions:
    """Return the functions of a unit, compiled.

    Raises:
        TracekitError: The code is not at hand, and neither is a compiler.
    """
    prebuilt = find_prebuilt(unit)
    if prebuilt is not None:
        return prebuilt
    try:
        from tracekit.compiled.just_in_time import load_or_compile

        return load_or_compile(unit)
    except ModuleNotFoundError as error:
        raise TracekitError(EXTRA_MISSING(distribution="numba", reason=str(error), extra="jit")) from error


_listener: ContextVar[ProgressCallback] = ContextVar("listener", default=lambda stage: None)


@contextmanager
def announce_compilation(progress: ProgressCallback) -> Iterator[None]:
    """Call ``progress`` when a loop is compiled within the context; loading compiled code is quick, and not told."""
    token = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(token)


def note_compilation() -> None:
    """Tell the caller that a loop is about to be compiled."""
    _listener.get()(COMPILING_LOOPS())
