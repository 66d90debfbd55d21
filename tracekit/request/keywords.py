"""Turn a function of a request into one of keyword arguments."""

import inspect
from collections.abc import Callable
from functools import update_wrapper
from inspect import Parameter
from typing import Any, Concatenate, ParamSpec, TypeVar

from tracekit.messages import name_argument
from tracekit.request.option import Request, RequestField, list_fields

Subject = TypeVar("Subject")
Options = ParamSpec("Options")
Asked = TypeVar("Asked", bound=Request)
Answer = TypeVar("Answer")


def take_options_of(
    request: Callable[Options, Asked],
) -> Callable[[Callable[[Subject, Asked], Answer]], Callable[Concatenate[Subject, Options], Answer]]:
    """Let a function take the options of a request as keyword arguments.

    The signature and the docstring list them, with the help that is declared.

    Args:
        request: The class of requests that the function takes as its second argument.
    """

    def decorate(answer: Callable[[Subject, Asked], Answer]) -> Callable[Concatenate[Subject, Options], Answer]:
        def take(subject: Subject, /, *args: Options.args, **options: Options.kwargs) -> Answer:
            return answer(subject, request(*args, **options))

        assert isinstance(request, type)
        shown: Any = update_wrapper(take, answer)
        shown.__signature__ = _write_signature(answer, list_fields(request))
        shown.__doc__ = _document_options(inspect.getdoc(answer) or "", list_fields(request))
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
