"""Inner loops as machine code: compiled once per installation, then linked in a millisecond.

numba compiles them. But importing numba and reading its own cache takes longer than predicting a step. So the object
code of each loop is stored (:mod:`object_cache`), and numba is imported only if there is none.
"""

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Generic, ParamSpec, get_type_hints

from tracekit.arrays import Bytes, Floats, Ints
from tracekit.compiled import object_cache
from tracekit.compiled.announcing import note_compilation
from tracekit.compiled.linking import BYTE_ARRAY, FLOAT_ARRAY, INT_ARRAY, INTEGER, Functions, Parameters, link_functions

P = ParamSpec("P")

_SYMBOL = "loop"
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
            self._linked = self._linked or self._link()
        result: int = self._linked[_SYMBOL](*arguments, **named)
        return result

    def _link(self) -> Functions:
        code = self.function.__code__
        used = {name: self.function.__globals__.get(name) for name in code.co_names}
        constants = {name: value for name, value in used.items() if isinstance(value, int | float)}
        hints = get_type_hints(self.function)
        kinds = [_KINDS[hints[name]] for name in code.co_varnames[: code.co_argcount]]
        return load_or_compile(
            self.function.__name__,
            (Path(code.co_filename).read_text(), repr(constants)),
            {_SYMBOL: tuple(kinds)},
            lambda: {_SYMBOL: self.function},
        )


def load_or_compile(
    stem: str,
    sources: tuple[str, ...],
    parameters: Parameters,
    import_functions: Callable[[], dict[str, Callable[..., int]]],
) -> Functions:
    """Link the stored object code of some functions, or else compile and store it.

    Args:
        stem: Beginning of the file's name.
        sources: All that the code depends on, beside the compilers.
        parameters: Kinds of each function's parameters.
        import_functions: Returns the functions; called only if they have to be compiled.
    """
    file_name = object_cache.compute_file_name(stem, sources)
    stored = object_cache.find_code(file_name)
    try:
        if stored is not None:
            return link_functions(stored, parameters)
    except RuntimeError:
        pass
    note_compilation()
    from tracekit.compiled.compile import compile_functions

    code = compile_functions(import_functions(), parameters)
    object_cache.store_code(file_name, code)
    return link_functions(code, parameters)
