"""What was entered into the form of a job: read as it was typed, and checked field by field.

A field is named as its option. Prices stand in boxes: ``price[GPU]`` beside each GPU, ``price[source]`` beside the
trace's, and one beside each cluster, in their order.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isinf, isnan, log2
from string import Formatter
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import FormData

from predictors import PredictorError
from tracekit.comm import load_cluster
from tracekit.errors import TracekitError
from tracekit.messages import front_ends
from tracekit.messages.requests import PRICE_NOT_A_PAIR
from tracekit.prediction.targets import expand_group, resolve_gpu_name
from tracekit.request import RequestField
from tracekit.request.answers import list_refused_options
from tracekit.request.options.layout import parse_batch_factor
from tracekit.web.ask import FIELDS, Ask, make_rank_by_rank_error, names_file
from tracekit.web.errors import WebError, serialize_error
from tracekit.web.jobs import WebJob

SOURCE = "source"
PRICE_BOX = re.compile(r"price\[([a-z0-9-]{1,80})\]")
CONTEXT = {name: ("gpu", "cluster", "source_gpu") for name in ("price", "power_cap", "clock")}
"""Options that are understood beside others only."""

ASK = TypeAdapter(Ask)


def collect_values(filled: Sequence[tuple[str, str]], fields: Mapping[str, RequestField]) -> dict[str, Any]:
    """Collect the texts of fields that aren't blank; several values of one field as a list."""
    values: dict[str, Any] = {}
    for name, value in filled:
        if value and name in fields:
            field = fields[name]
            parts = value.split(field.option.separator) if field.is_several else [value]
            texts = [part.strip() for part in parts if part.strip()]
            values[name] = [*values.get(name, ()), *texts] if field.is_several else value
    return values


@dataclass(frozen=True, slots=True)
class Entered:
    """What stands in the form.

    Attributes:
        values: The options as entered, without blank ones.
        boxes: Prices beside GPUs, by the GPU's name or :data:`SOURCE`, as typed.
        cluster_prices: Prices beside the clusters, in the order of ``values["cluster"]``.
        recorded_gpu: The GPU that the trace names; ``None`` if it names none.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    boxes: Mapping[str, str] = field(default_factory=dict)
    cluster_prices: Sequence[str] = ()
    recorded_gpu: str | None = None

    @classmethod
    def from_form(cls, form: FormData, recorded_gpu: str | None) -> "Entered":
        """Read a form."""
        filled = [(name, value.strip()) for name, value in form.multi_items() if isinstance(value, str)]
        clusters = [value for name, value in filled if name == "cluster"]
        prices = [value for name, value in filled if name == "cluster_price"]
        prices += [""] * (len(clusters) - len(prices))
        values = collect_values(filled, FIELDS)
        boxes = {found[1]: value for name, value in filled if value and (found := PRICE_BOX.fullmatch(name))}
        given = [price for cluster, price in zip(clusters, prices, strict=False) if cluster]
        return cls(values, boxes, given, recorded_gpu)

    @classmethod
    def from_request(cls, request: Mapping[str, Any] | None, recorded_gpu: str | None) -> "Entered":
        """Fill the form in with what was asked before: prices of GPUs that are shown stand in their boxes."""
        defaults = {name: option.default for name, option in FIELDS.items()}
        given = (request or {}).items()
        values = {name: value for name, value in given if name in FIELDS and value not in ([], None, defaults[name])}
        values["gpu"] = [_find_gpu(name) for name in values.get("gpu", ())]
        texts = _list_price_texts(values.pop("price", ()))
        pairs = [text.rpartition("=") for text in texts if "=" in text]
        prices = {_find_gpu(gpu.strip()): dollars.strip() for gpu, _, dollars in pairs}
        boxes = {gpu: prices[gpu] for gpu in values["gpu"] if gpu in prices}
        source = _find_gpu(values.get("source_gpu") or recorded_gpu or "")
        if source in prices and source not in boxes:
            boxes[SOURCE] = prices[source]
        cluster_gpus = [_find_cluster_gpu(cluster) for cluster in values.get("cluster", ())]
        cluster_prices = [prices.get(gpu, "") if gpu not in {*boxes, source} else "" for gpu in cluster_gpus]
        others = prices.keys() - {*boxes, *cluster_gpus, source}
        nameless = [text for text in texts if "=" not in text]
        values["price"] = [*nameless, *(f"{gpu}={prices[gpu]}" for gpu in prices if gpu in others)]
        return cls(values, boxes, cluster_prices, recorded_gpu)

    @property
    def source_gpu(self) -> str | None:
        """The GPU of the trace, as entered or else as recorded."""
        return self.values.get("source_gpu") or self.recorded_gpu

    def to_options(self) -> dict[str, Any]:
        """Return the options as a request takes them.

        A source GPU that is the recorded one isn't asked for, so that the report still says how it is known.
        """
        options = dict(self.values)
        if options.get("source_gpu") == self.recorded_gpu:
            options.pop("source_gpu", None)
        prices = [*options.get("price", ()), *(pair for _, _, pair in self._list_boxes())]
        return options | ({"price": prices} if prices else {})

    def find_mistakes(self, ranks: int = 0) -> dict[str, dict[str, Any]]:
        """Return what is wrong, as JSON shows errors, by the name of the field; by ``""`` what concerns no single one.

        Each field is checked by itself, so that all mistakes are said at once; then all of them together.

        Args:
            ranks: The number of ranks if they are worked on one by one, which some options don't go with; else 0.
        """
        options = self.to_options()
        mistakes: dict[str, dict[str, Any]] = {}
        for name in self.values:
            checked = (name, *(other for other in CONTEXT.get(name, ()) if other not in mistakes))
            values = self.values if name == "price" else options
            _note_mistake(mistakes, name, {each: values[each] for each in checked if each in values})
        for box, context, pair in self._list_boxes():
            if not mistakes.keys() & context.keys():
                _note_mistake(mistakes, box, context | {"price": [pair]})
            if mistakes.get(box, {}).get("code") == PRICE_NOT_A_PAIR.code:  # the field has no GPU=PRICE
                price = pair.rpartition("=")[2]
                mistakes[box] = serialize_error(WebError(front_ends.PRICE_NOT_A_NUMBER(price=price)))
        if SOURCE in self.boxes and not self.source_gpu:
            mistakes["source_gpu"] = serialize_error(WebError(front_ends.PRICE_WITHOUT_GPU()))
        if not mistakes:
            _note_mistake(mistakes, "", options)
        if not mistakes and ranks and "ranks" not in self.values:
            for name in list_refused_options(ASK.validate_python(options)):
                mistakes[name] = serialize_error(make_rank_by_rank_error(name, ranks))
        return mistakes

    def _list_boxes(self) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Return each filled price box beside something chosen: its name, what it is beside, and the price's text."""
        for gpu in self.values.get("gpu", ()):
            if price := self.boxes.get(gpu):
                yield f"price[{gpu}]", {"gpu": [gpu]}, f"{gpu}={price}"
        if (price := self.boxes.get(SOURCE)) and self.source_gpu:
            yield f"price[{SOURCE}]", {"source_gpu": self.source_gpu}, f"{self.source_gpu}={price}"
        for place, (cluster, price) in enumerate(
            zip(self.values.get("cluster", ()), self.cluster_prices, strict=False)
        ):
            if price:
                yield f"cluster_price[{place}]", {"cluster": [cluster]}, f"{_find_cluster_gpu(cluster)}={price}"


def _find_gpu(name: str) -> str:
    """Return a GPU's canonical name; the name itself if it isn't that of one GPU."""
    try:
        return name if names_file(name) else resolve_gpu_name(name).gpu.slug
    except (TracekitError, PredictorError):
        return name


def _find_cluster_gpu(cluster: str) -> str:
    """Return the canonical name of a cluster's GPU; the cluster's own name if there is no such cluster."""
    try:
        return cluster if names_file(cluster) else load_cluster(cluster, unlike_gpus=True).gpu.slug
    except (TracekitError, PredictorError):
        return cluster


def _note_mistake(mistakes: dict[str, dict[str, Any]], name: str, options: Mapping[str, Any]) -> None:
    """Note what is wrong with some options under a field's name, by default that of the one which the error names."""
    try:
        ASK.validate_python(options)
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0])
        mistakes[name or option] = serialize_error(explain_type(FIELDS[option], options.get(option), first["msg"]))
    except (TracekitError, PredictorError) as error:
        mistakes[name or find_named_field(error, FIELDS)] = serialize_error(error)


def explain_type(field: RequestField, value: Any, reason: str) -> TracekitError:
    """Return the error of a text that isn't what its option takes, such as a number."""
    try:
        field.check(value)
    except TracekitError as error:
        return error
    return WebError(front_ends.FIELD_INVALID(field=field.option.label, reason=reason))


def find_named_field(error: TracekitError | PredictorError, fields: Mapping[str, RequestField]) -> str:
    """Return the field that an error's message names first; empty if it names none."""
    told = error.catalogue_message if isinstance(error, TracekitError) else None
    if told is None:
        return ""
    parts = [part for text in (told.template.text, told.template.hint) for part in Formatter().parse(text)]
    named = [str(part[1]).removeprefix("--").replace("-", "_") for part in parts if str(part[1]).startswith("--")]
    named += [str(told.values.get("option", "")).replace(" ", "_")]
    return next((name for name in named if name in fields), "")


def _list_price_texts(prices: Mapping[str, float] | Sequence[str]) -> list[str]:
    return [f"{gpu}={dollars:.15g}" for gpu, dollars in prices.items()] if isinstance(prices, Mapping) else [*prices]


NODE = re.compile(r"[1-8]x([a-z0-9-]+)")
"""Name of a cluster that is one node of some GPUs."""
MAX_GPUS_OF_NODE = 8
"""GPUs that a target which is a GPU alone may have: those of the usual node."""


@dataclass(frozen=True, slots=True)
class Slider:
    """One slider.

    Attributes:
        name: Name of its option, and of its input.
        label: What it changes.
        least: Its least value.
        most: Its largest one.
        step: Distance between values.
        value: Where it stands.
        is_power: Whether its values are exponents of 2.
    """

    name: str
    label: str
    least: float
    most: float
    step: float
    value: float
    is_power: bool

    @property
    def shown(self) -> str:
        """Its value as people read it."""
        return f"{2**self.value if self.is_power else self.value:.3g}"

    def read(self, text: str) -> float:
        """Return where it was moved to, within its range; where it stood if a text says nothing."""
        try:
            value = float(text)
        except ValueError:
            return self.value
        return self.value if isnan(value) else min(max(value, self.least), self.most)


def list_sliders(job: WebJob) -> list[Slider]:
    """Return the sliders of a job's report, where they stand by its request; none without targets, or of a fleet."""
    request = job.request or {}
    if job.is_fleet or not (request.get("gpu") or request.get("cluster")):
        return []
    gpus = request.get("world_size") or _count_ranks(job)
    clusters = [name for name in request.get("cluster") or () if not NODE.fullmatch(name)]
    most = min((load_cluster(name, unlike_gpus=True).gpus for name in clusters), default=MAX_GPUS_OF_NODE)
    sliders = [
        Slider("batch", "Batch, times the trace's", -3, 5, 1, round(log2(_get_batch_factor(request))), True),
        Slider("host_speed", "Host speed, times the trace's", 0.5, 3, 0.1, request.get("host_speed") or 1, False),
        Slider("world_size", "GPUs in use", 0, int(log2(max(most, gpus))), 1, round(log2(gpus)), True),
    ]
    return [slider for slider in sliders if isinstance(slider.value, int | float) and slider.least < slider.most]


def _get_batch_factor(request: Mapping[str, Any]) -> float:
    """Return the multiple of the batch that a request asks for; 1 for the largest that fits."""
    factor = parse_batch_factor(request.get("batch"))
    return 1.0 if factor is None or isinf(factor) else factor


def adjust_request(job: WebJob, entered: Mapping[str, str]) -> dict[str, Any]:
    """Return a job's request with what its sliders changed, without its timeline."""
    request = dict(job.request or {})
    for slider in list_sliders(job):
        moved = slider.read(entered.get(slider.name, ""))
        if moved == slider.value:
            continue
        value = 2.0**moved if slider.is_power else moved
        if slider.name == "world_size":
            request |= _move_to_gpus(request, int(value), _count_ranks(job))
        else:
            request[slider.name] = None if value == 1 else value
    return request if request == job.request else request | {"timeline": False}


def _count_ranks(job: WebJob) -> int:
    """Return the number of ranks that were traced."""
    ranks: int | None = (job.found or {}).get("diagnosis", {}).get("world_size")
    return ranks or 1


def _move_to_gpus(request: Mapping[str, Any], gpus: int, ranks: int) -> dict[str, Any]:
    """Return the targets with another number of GPUs each: the links between those of a GPU alone are a node's."""
    nodes = [found[1] for name in request["cluster"] if (found := NODE.fullmatch(name))]
    alone = [*(gpu for name in request["gpu"] for gpu in expand_group(name)), *nodes]
    others = [name for name in request["cluster"] if not NODE.fullmatch(name)]
    targets = {"gpu": alone, "cluster": others}
    if gpus > 1:
        targets = {"gpu": [], "cluster": [*others, *(f"{gpus}x{name}" for name in alone)]}
    return targets | {"world_size": None if gpus == ranks else gpus}
