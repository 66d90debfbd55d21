"""Keep what was computed of an immutable object on that object."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Rest = ParamSpec("Rest")
Result = TypeVar("Result")


def keep_on_first(function: Callable[Concatenate[Any, Rest], Result]) -> Callable[Concatenate[Any, Rest], Result]:
    """Decorate a function so that its result for an immutable object is computed once and kept on the object.

    A copy with other fields, as ``dataclasses.replace`` makes it, starts with nothing kept.
    """
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def compute_once(owner: Any, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Result:
        kept: dict[object, Result] = owner.__dict__.setdefault("_kept", {})
        key = (name, args, *sorted(kwargs.items()))
        if key not in kept:
            kept[key] = function(owner, *args, **kwargs)
        return kept[key]

    return compute_once
