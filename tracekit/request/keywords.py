"""Turn a function of a request into one of keyword arguments."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import update_wrapper, wraps
from inspect import Parameter
from typing import Any, Concatenate, ParamSpec, TypeVar

from tracekit.errors import GpuError, TracekitError
from tracekit.messages import name_argument
from tracekit.request.option import Request, RequestField, list_fields

Subject = TypeVar("Subject")
Options = ParamSpec("Options")
Asked = TypeVar("Asked", bound=Request)
Answer = TypeVar("Answer")


Given = ParamSpec("Given")


@contextmanager
def speak_python() -> Iterator[None]:
    """Let refusals name options as Python does, and those of predictors be of tracekit's own tree.

    Raises:
        GpuError: What predictors raises.
    """
    try:
        yield
    except TracekitError as error:
        error.name_options(name_argument)
        raise
    except Exception as error:
        from predictors import PredictorError

        if not isinstance(error, PredictorError):
            raise
        raise GpuError(error.code, error.message, error.hint) from error


def refuse_in_python(function: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Let a function refuse as :func:`speak_python` says."""

    @wraps(function)
    def call(*args: Given.args, **options: Given.kwargs) -> Answer:
        with speak_python():
            return function(*args, **options)

    return call


def _check_keywords(function: str, fields: tuple[RequestField, ...], given: Iterable[str]) -> None:
    """Check that a function has these keyword arguments.

    Raises:
        TypeError: It has not; the message names those like it.
    """
    known = {field.name.replace("_", ""): field.name for field in fields}
    for name in given:
        if name not in known.values():
            plain = name.replace("_", "").lower()
            near = [known[one] for one in known if one in plain or plain in one]
            near = near or [known[one] for one in get_close_matches(plain, known)]
            meant = f". Did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{meant}")


def take_options_of(
    request: Callable[Options, Asked],
) -> Callable[[Callable[[Subject, Asked], Answer]], Callable[Concatenate[Subject, Options], Answer]]:
    """Let a function take the options of a request as keyword arguments.

    The signature and the docstring list them, with the help that is declared.

    Args:
        request: The class of requests that the function takes as its second argument.
    """

    def decorate(answer: Callable[[Subject, Asked], Answer]) -> Callable[Concatenate[Subject, Options], Answer]:
        assert isinstance(request, type)
        fields = list_fields(request)

        def take(subject: Subject, /, *args: Options.args, **options: Options.kwargs) -> Answer:
            with speak_python():
                _check_keywords(answer.__name__, fields, options)
                return answer(subject, request(*args, **options))

        shown: Any = update_wrapper(take, answer)
        shown.__signature__ = _write_signature(answer, fields)
        shown.__doc__ = _document_options(inspect.getdoc(answer) or "", fields)
        return take

    return decorate


def _write_signature(answer: Callable[..., Any], options: tuple[RequestField, ...]) -> inspect.Signature:
    given = inspect.signature(answer)
    subject = next(iter(given.parameters.values())).replace(kind=Parameter.POSITIONAL_ONLY)
    keywords = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.annotation)
        for field in options
    ]
    return inspect.Signature([subject, *keywords], return_annotation=given.return_annotation)


def _document_options(text: str, options: tuple[RequestField, ...]) -> str:
    """Add the options to the ``Args:`` of a docstring."""
    before, mark, errors = text.partition("\n\nRaises:")
    lines = [f"    {field.name}: {field.option.render_help(name_argument)}" for field in options]
    return "\n".join((before, *lines)) + mark + errors
