"""Extension of griffe: show the signatures that are made from the options of a request."""

import inspect
from typing import Any

import griffe

import tracekit

DECORATOR = "tracekit.request.keywords.take_options_of"


class KeywordOptions(griffe.Extension):
    """Replaces parameters and docstring of functions with the decorator by those that Python shows."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Replace them where the function has the decorator."""
        if not any(decorator.callable_path == DECORATOR for decorator in func.decorators):
            return
        shown = getattr(tracekit, func.name)
        func.parameters = griffe.Parameters(
            *(
                griffe.Parameter(
                    parameter.name,
                    kind=griffe.ParameterKind[parameter.kind.name.lower()],
                    annotation=format_type(parameter.annotation),
                    default=None if parameter.default is inspect.Parameter.empty else repr(parameter.default),
                )
                for parameter in inspect.signature(shown).parameters.values()
            )
        )
        func.docstring = griffe.Docstring(inspect.getdoc(shown) or "", parent=func, parser="google")


def format_type(annotation: object) -> str:
    """Return a type as it is written."""
    return inspect.formatannotation(annotation).replace("collections.abc.", "").strip("'")
