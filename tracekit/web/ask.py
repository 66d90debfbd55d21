"""What a user of the server asks: the request that all front ends share, within the server's limits."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from predictors import Gpu, list_gpus, load_gpu
from predictors.errors import UnknownGpuError
from tracekit.comm import UnknownClusterError
from tracekit.messages import Template, front_ends
from tracekit.messages.catalogue import read_message
from tracekit.request import ExportRequest, Option, ServingRequest, list_fields
from tracekit.request.option import Request, split_values
from tracekit.request.options import DecisionOptions
from tracekit.request.program_options import ProgramOptions
from tracekit.web.errors import WebError

MAX_VALUES = 32
"""Most values of one option."""
MAX_TEXT_CHARS = 300
FILE_OPTIONS = ("gpu", "cluster", "source_gpu", "source_cluster", "price", "critical_batch")
"""Options whose values may name a file on the command line."""


@dataclass(frozen=True, kw_only=True)
class LimitedRequest(Request):
    """A request over HTTP, within the server's limits."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

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


@dataclass(frozen=True, kw_only=True)
class Ask(LimitedRequest, ExportRequest, DecisionOptions, ProgramOptions):
    """What to find out; names and meanings as on the command line. Without a target: the measured run only."""

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
    question = DecisionOptions.question
    timeline: Annotated[bool, Option("Also draw the timeline for Perfetto, which takes as long again.", "Timeline")] = (
        False
    )


def names_file(text: str) -> bool:
    """Return whether a value of an option that may name a file does, which the server never reads."""
    return any(suffix in text.lower() for suffix in (".toml", ".csv"))


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


_OPTION_LABELS = {
    field.name.replace("_", "-"): f"“{field.option.label}”"
    for field in (*list_fields(ServingRequest), *FIELDS.values())
}

_PRICE_BOXES = {"source": "the trace's GPU", "0": "the cluster", "1": "the other cluster"}


def name_field(option: str) -> str:
    """Name an option as the page does: by the label of its field.

    Examples:
        >>> name_field("tp")
        '“Tensor parallel (TP)”'
    """
    return _OPTION_LABELS.get(option, f"the command line's --{option}")


def name_box(name: str) -> str:
    """Name an input of the form: an option's field, or a box for a price.

    Examples:
        >>> name_box("price[l40s]"), name_box("steps")
        ('price of l40s', 'Steps')
    """
    if name in FIELDS:
        return FIELDS[name].option.label
    beside = name.partition("[")[2].removesuffix("]")
    return f"price of {_PRICE_BOXES.get(beside, beside)}"


def render_message(shown: Mapping[str, Any]) -> str:
    """Render a message that was stored as JSON."""
    return read_message(shown).render(name_field)


def describe_error(shown: Mapping[str, Any]) -> dict[str, str]:
    """Return the ``message`` and the ``hint`` of an error for the page.

    Args:
        shown: The error, as :func:`tracekit.web.errors.serialize_error` returns it.
    """
    if shown["catalogue"] is None:
        return {"message": shown["message"], "hint": shown["hint"]}
    told = read_message(shown["catalogue"])
    return {"message": told.render_text(name_field), "hint": told.render_hint(name_field)}


USUAL_GPUS = ("h100-sxm", "h200-sxm", "b200", "a100-sxm-80gb", "l40s", "mi300x")
"""What people ask about most, most common first."""

VENDOR_NAMES = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}


@dataclass(frozen=True, slots=True)
class GpuFamily:
    """GPUs of one architecture."""

    name: str
    gpus: tuple[Gpu, ...]


def list_usual_gpus(chosen: Collection[str]) -> list[Gpu]:
    """Return the GPUs that the form shows first: the usual ones, and others that are chosen already."""
    others = sorted(set(chosen) & set(list_gpus()) - set(USUAL_GPUS))
    return [load_gpu(slug) for slug in (*USUAL_GPUS, *others)]


def list_families(shown: Collection[Gpu]) -> list[GpuFamily]:
    """Return the GPUs that aren't shown yet by architecture, of each vendor the newest first."""
    families: dict[tuple[str, str], list[Gpu]] = {}
    for gpu in map(load_gpu, list_gpus()):
        if gpu not in shown:
            families.setdefault((gpu.vendor, gpu.architecture), []).append(gpu)
    order = sorted(
        families, key=lambda key: (list(VENDOR_NAMES).index(key[0]), -max(gpu.year for gpu in families[key]))
    )
    return [
        GpuFamily(
            f"{VENDOR_NAMES[vendor]} {architecture.title() if vendor == 'nvidia' else architecture.upper()}",
            tuple(sorted(families[vendor, architecture], key=lambda gpu: (-gpu.memory_bytes, gpu.slug))),
        )
        for vendor, architecture in order
    ]


def build_search_text(gpu: Gpu) -> str:
    """Build the text that the form's search matches."""
    return " ".join((gpu.slug, gpu.name, gpu.vendor, gpu.architecture, *gpu.aliases)).lower()
