"""What a user of the server asks: the request that all front ends share, within the server's limits."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from predictors.errors import UnknownGpuError
from tracekit.comm import UnknownClusterError
from tracekit.messages import Template, front_ends
from tracekit.request import ExportRequest, Option, list_fields
from tracekit.request.option import split_values
from tracekit.request.options import DecisionOptions
from tracekit.request.program_options import ProgramOptions
from tracekit.web.errors import WebError

MAX_VALUES = 32
"""Most values of one option."""
MAX_TEXT_CHARS = 300
FILE_OPTIONS = ("gpu", "cluster", "source_gpu", "source_cluster", "price")
"""Options whose values may name a file on the command line."""


@dataclass(frozen=True, kw_only=True)
class Ask(ExportRequest, DecisionOptions, ProgramOptions):
    """What to find out; names and meanings as on the command line. Without a target: the measured run only."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    model_config: ClassVar[None] = None  # type: ignore[misc]
    """No option here: the server reads no file that a request names. It takes the one uploaded with the traces."""
    indices: ClassVar[None] = None  # type: ignore[misc]
    """Likewise."""
    host_from: ClassVar[None] = None  # type: ignore[misc]
    """Likewise. `info` of such a trace prints its host's speed, which `host` takes."""
    measured: ClassVar[None] = None  # type: ignore[misc]
    """Likewise."""
    prices: ClassVar[None] = None  # type: ignore[misc]
    """Likewise; `price` takes them one by one."""
    ranks: Annotated[int | None, Option("Measure one rank; default all, together.", "Rank", "N", minimum=0)] = None

    def check(self) -> None:
        """Check all options, and the server's limits first.

        Raises:
            WebError: A GPU or a cluster is unknown, a name is a file name, or there is too much.
            TracekitError: An option has an impossible value.
            PredictorError: A GPU's name is ambiguous.
        """
        for field in list_fields(type(self)):
            self._check_limits(field.name, getattr(self, field.name))
        try:
            super().check()
        except UnknownGpuError as error:
            raise _refer_to_server(error, front_ends.GPU_UNKNOWN_TO_SERVER) from error
        except UnknownClusterError as error:
            raise _refer_to_server(error, front_ends.CLUSTER_UNKNOWN_TO_SERVER) from error

    def _check_limits(self, option: str, value: Any) -> None:
        texts = [text for text in split_values(value) if isinstance(text, str)]
        if len(texts) > MAX_VALUES or any(len(text) > MAX_TEXT_CHARS for text in texts):
            too_many = front_ends.VALUES_TOO_MANY
            raise WebError(too_many(option=option.replace("_", " "), most=MAX_VALUES, max_length=MAX_TEXT_CHARS))
        for text in texts if option in FILE_OPTIONS else ():
            if names_file(text):
                raise WebError(front_ends.SERVER_READS_NO_FILES(value=text))


def names_file(text: str) -> bool:
    """Return whether a value of a GPU or cluster names a file, which the server never reads."""
    return ".toml" in text.lower()


def _refer_to_server(error: UnknownGpuError | UnknownClusterError, template: Template) -> WebError:
    """Replace the hint of an error, which is for the command line; keep its code."""
    refusal = WebError(template(reason=error.message))
    refusal.code = error.code
    return refusal


FIELDS = {field.name: field for field in list_fields(Ask)}
"""The options by name."""


def make_rank_by_rank_error(option: str, ranks: int) -> WebError:
    """Make the error of an option that needs all ranks at once, for a job whose ranks are worked on one by one."""
    return WebError(front_ends.RANKS_WITHOUT_OPTION(ranks=ranks, option=FIELDS[option].option.label))
