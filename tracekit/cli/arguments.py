"""The arguments of commands: options of several commands, those made of requests, and what the shell completes."""

import inspect
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import update_wrapper
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from tracekit.messages import name_option
from tracekit.request import Panel, Request, RequestField, list_fields

Completion = Callable[[str], list[str]]
"""Takes what is typed so far."""


def _complete(list_names: Callable[[], Iterable[str]]) -> Completion:
    """Return a completion from names, which are listed only when the shell asks."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in list_names() if name.startswith(incomplete.lower())]

    return complete


def _list_gpus() -> list[str]:
    from predictors import list_gpus
    from predictors.cpu_files import list_cpus

    return [*list_gpus(), *list_cpus()]


def _list_clusters() -> list[str]:
    from tracekit.comm import list_clusters

    return list_clusters()


def _list_hosts() -> list[str]:
    from tracekit.hosts.usual import list_hosts
    from tracekit.prediction.target_host import SAME, TYPICAL, UNKNOWN

    return [UNKNOWN, SAME, TYPICAL, *(host.slug for host in list_hosts())]


def _list_rules() -> list[str]:
    from tracekit.inference_rules import INFERENCE_RULES

    return [rule.name for rule in INFERENCE_RULES]


def _list_subjects() -> list[str]:
    from tracekit.messages.catalogue import CATALOGUE
    from tracekit.packaged import list_pages

    return [*(page.name for page in list_pages()), *CATALOGUE]


complete_subjects = _complete(_list_subjects)
complete_gpus, complete_clusters = _complete(_list_gpus), _complete(_list_clusters)

COMPLETIONS: dict[str, Completion] = {
    "gpu": complete_gpus,
    "source_gpu": complete_gpus,
    "price": _complete(lambda: [f"{gpu}=" for gpu in _list_gpus()]),
    "cluster": complete_clusters,
    "source_cluster": complete_clusters,
    "host": _complete(_list_hosts),
    "framework": _complete(lambda: ("vllm", "sglang", "trtllm")),
    "without_rule": _complete(_list_rules),
}
"""By the name of the field of a request."""


class OutputFormat(StrEnum):
    """Format of a report; also the suffix of its file."""

    HTML = "html"
    JSON = "json"
    MD = "md"
    XLSX = "xlsx"
    PARQUET = "parquet"
    CSV = "csv"
    TXT = "txt"


def _check_size(memory: str | None) -> str | None:
    """Return the size unchanged if it is one."""
    from tracekit.errors import TracekitError
    from tracekit.ingest import parse_memory_size

    try:
        parse_memory_size(memory)
    except TracekitError as error:
        raise typer.BadParameter(str(error)) from error
    return memory


TRACES_HELP = "PyTorch profiler traces of one job: .json, .gz, .zst, .zip; a directory, glob, URI, or - for stdin."
Traces = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACE",
        help=TRACES_HELP,
        show_default=False,
    ),
]
TracesOrProgram = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACE",
        help=f"{TRACES_HELP} Or a program that never ran: FILE.py:FUNCTION, or the config.json of a Hugging Face "
        "model.",
        show_default=False,
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(
        "--ranks", metavar="N", min=0, help="Measure one rank; default all, together.", rich_help_panel=Panel.INPUT
    ),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Decode anew and don't cache.", rich_help_panel=Panel.INPUT)]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        callback=_check_size,
        help="The most that a trace may take, such as 2G.",
        rich_help_panel=Panel.INPUT,
    ),
]
Stacks = Annotated[
    bool,
    typer.Option(
        "--stacks",
        help="Also read Python's calls (with_stack=True): time by module, Python lines.",
        rich_help_panel=Panel.INPUT,
    ),
]
Top = Annotated[int, typer.Option("--top", metavar="N", min=0, help="Kernels to list.", rich_help_panel=Panel.OUTPUT)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=Panel.OUTPUT)]
Format = Annotated[
    OutputFormat | None,
    typer.Option(
        "--format",
        metavar="FORM",
        help=f"What to print, or to write to the output: {', '.join(OutputFormat)}; default by its suffix. csv and "
        "parquet of predictions are a row for each target, with the kernels in a file beside it.",
        rich_help_panel=Panel.OUTPUT,
    ),
]
Output = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Also write a file, in the form that its suffix names; several may be given.",
        rich_help_panel=Panel.OUTPUT,
    ),
]
ReportOutput = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Also write a file, in the form that its suffix names; several may be given. - prints Markdown instead, "
        "or what --format names.",
        rich_help_panel=Panel.OUTPUT,
    ),
]
WithDetails = Annotated[
    bool,
    typer.Option(
        "--with-details",
        help="Also write paths, hosts, the command line, prices and dollars to the output.",
        rich_help_panel=Panel.OUTPUT,
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="Work rank by rank, for hundreds of ranks: local (this process), dask (processes of this machine), or a "
        "Dask scheduler such as tcp://scheduler:8786. Default: all ranks in memory, with all options.",
        rich_help_panel=Panel.INPUT,
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FOLDER",
        help="With --engine, a path or URI that all workers reach, for the ranks' tables; default their own disks.",
        rich_help_panel=Panel.INPUT,
    ),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite the output file.", rich_help_panel=Panel.OUTPUT)]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also the dependency graph and its constants.", rich_help_panel=Panel.OUTPUT),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.", rich_help_panel=Panel.OUTPUT)]


class ArgumentGroup:
    """A dataclass of options that several commands take together; each field is annotated as typer wants it."""


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with an option for each field of the requests and groups among its parameters.

    In the help, a command's own options come before those of its group. What several groups have is one option.
    """
    given = inspect.signature(command, eval_str=True).parameters
    groups = {name: (one.annotation, _list_options(one.annotation)) for name, one in given.items()}

    def run(**values: Any) -> None:
        made = {
            name: group(**{one.name: values[one.name] for one in options})
            for name, (group, options) in groups.items()
            if options
        }
        command(**{name: value for name, value in values.items() if name in given}, **made)

    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in sorted(given.items(), key=lambda item: _is_group(item[1].annotation))
        for one in groups[name][1] or [parameter]
    ]
    parameters = sorted({one.name: one for one in parameters}.values(), key=_rank_panel)
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
    """Return the place of a parameter's panel in the help; arguments, and options without one, come first."""
    panels = [*Panel]
    named = [one.rich_help_panel for one in get_args(parameter.annotation) if isinstance(one, OptionInfo)]
    return panels.index(named[0]) if named and named[0] in panels else -1


def _list_options(annotation: Any) -> list[inspect.Parameter]:
    """List the options of a request or a group, of which those of a derived class come first; of others none."""
    if isinstance(annotation, type) and issubclass(annotation, Request):
        return [*map(make_parameter, list_fields(annotation))]
    if not _is_group(annotation):
        return []
    hints = get_type_hints(annotation, include_extras=True)
    names = dict.fromkeys(name for one in annotation.__mro__ for name in inspect.get_annotations(one))
    return [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=getattr(annotation, name), annotation=hints[name]
        )
        for name in names
    ]


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, ArgumentGroup)
