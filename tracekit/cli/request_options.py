"""Make the options of a command from the requests that it takes."""

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Annotated, Any, get_args

import typer
from typer.models import OptionInfo

from tracekit.cli.completion import COMPLETIONS
from tracekit.messages import name_option
from tracekit.request import Panel, Request, RequestField, list_fields


def expand_requests(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with an option for each field of the requests among its parameters."""
    given = inspect.signature(command, eval_str=True).parameters
    requests = {name: one.annotation for name, one in given.items() if _is_request(one.annotation)}

    def run(**values: Any) -> None:
        made = {
            name: request(**{field.name: values.pop(field.name) for field in list_fields(request)})
            for name, request in requests.items()
        }
        command(**values, **made)

    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in given.items()
        for one in ([*map(make_parameter, list_fields(requests[name]))] if name in requests else [parameter])
    ]
    parameters.sort(key=_rank_panel)
    shown: Any = update_wrapper(run, command)
    shown.__signature__ = inspect.Signature(parameters)
    shown.__annotations__ = {one.name: one.annotation for one in parameters}
    del shown.__wrapped__
    return run


def make_parameter(field: RequestField) -> inspect.Parameter:
    """Return the parameter from which typer makes a field's option."""
    default = [] if field.is_several else field.default
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotate_option(field)
    )


def annotate_option(field: RequestField) -> Any:
    """Return the type of a field's option: text wherever text is allowed, for the request to parse."""
    kind = str if str in field.value_types else field.value_types[0]
    help_text = field.option.render_help(name_option)
    flags = [f"--{field.name.replace('_', '-')}", *filter(None, [field.option.short])]
    if kind is bool:
        return Annotated[bool, typer.Option(*flags, help=help_text, rich_help_panel=field.panel)]
    shown: dict[str, Any] = {
        "metavar": field.option.metavar,
        "show_default": False,
        "rich_help_panel": field.panel,
        "autocompletion": COMPLETIONS.get(field.name),
    }
    if field.is_several:
        return Annotated[list[kind], typer.Option(*flags, help=f"{help_text} Repeatable.", **shown)]  # type: ignore[valid-type]
    return Annotated[kind | None, typer.Option(*flags, help=help_text, **shown)]


def _rank_panel(parameter: inspect.Parameter) -> int:
    """Return the place of a parameter's panel in the help; arguments come first."""
    panels = [*Panel]
    declared = [one for one in get_args(parameter.annotation) if isinstance(one, OptionInfo)]
    return panels.index(declared[0].rich_help_panel) if declared else -1


def _is_request(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Request)
