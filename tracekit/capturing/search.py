"""Predict many variants of a config: layers are captured once for all depths, and graphs built once for all widths.

Variants that differ in their depth alone share a capture, whose equal layers are repeated as often as each has them.
Those that launch the same ops in the same order share a dependency graph, which depends on no size. What is left of a
variant is its kernels' work, which is read from one table of all calls::

    widths  x  depths          captured                 kernels                    graphs
    1024       12, 24, 48      one step of 1024   -->   one table of all the  -->  one for 12, 24, 48 layers
    2048       12, 24, 48      one step of 2048         calls that differ          each, for both widths
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from predictors import PredictorError, resolve_gpu
from tracekit.arrays import Ints
from tracekit.capturing.options import CaptureOptions
from tracekit.capturing.program import LONG_US, CapturedProgram
from tracekit.capturing.repeated_layers import LayersUnequalError
from tracekit.capturing.steps import NamedProgram
from tracekit.capturing.timed_trace import REFERENCE_GPU, CaptureSetting, load_captured
from tracekit.capturing.timeline import build_trace, describe_capture
from tracekit.capturing.variants import Value, Variant
from tracekit.errors import CaptureError, TracekitError
from tracekit.messages import Message, ProgressCallback
from tracekit.messages import models as messages
from tracekit.models.captured import FACTS_KEY, CaptureFacts
from tracekit.prediction.model import Predictions
from tracekit.run import MeasuredRun
from tracekit.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.capturing.calls import Call

GRAPH_COLUMNS = (
    "rank", "ts_ns", "dur_ns", "kind", "device", "stream", "correlation", "graph_node_id", "call", "op_row", "step",
    "phase", "module", "python_line", "wait_ns",
)  # fmt: skip
"""Columns of the kernel table that tell where a kernel stands; the others tell its work."""


@dataclass(frozen=True)
class SizedProgram:
    """A variant's step: its calls, in order, and what is known of it.

    Attributes:
        calls: The calls.
        facts: Parameters and memory.
        whole: The captured step; None where another depth's tells it.
    """

    calls: "Sequence[Call]"
    facts: CaptureFacts
    whole: CapturedProgram | None = None


class VariantCaptures:
    """Captures variants, those of one width together.

    Args:
        options: How each is captured.
        batch: Its sequences or samples; None for its own.
        path: A config's path for messages.
    """

    def __init__(self, options: CaptureOptions, batch: int | None, path: str) -> None:
        self._options, self._batch, self._path = options, batch, path
        self._captured: dict[str, CapturedProgram] = {}

    def find(self, variant: Variant) -> SizedProgram:
        """Return a variant's step.

        Raises:
            TracekitError: It can't be captured.
        """
        known, key = self._captured.get(variant.width), variant.depth_key
        if known is not None and known.repeats is not None and key is not None:
            count = variant.values[key]
            try:
                other = known.repeats.change_depth(known, count) if isinstance(count, int) else None
            except LayersUnequalError:
                other = None
            if other is not None:
                return SizedProgram(other.calls, other.facts)
        return self.capture(variant)

    def capture(self, variant: Variant) -> SizedProgram:
        """Capture a variant's step, whatever is known of others.

        Raises:
            TracekitError: It can't be captured.
        """
        with _write_config(variant, self._path) as name:
            try:
                found = NamedProgram(name, self._options).capture_batch(self._batch)
            except TracekitError as error:
                raise TracekitError(messages.VARIANT_FAILS(reason=str(error).replace(name, self._path))) from error
        known = self._captured.get(variant.width)
        if known is None or known.repeats is None:
            self._captured[variant.width] = found
        return SizedProgram(found.calls, found.facts, found)


@dataclass
class CallTable:
    """The calls of all variants, each once, and the kernels that they launch."""

    calls: "list[Call]" = field(default_factory=list)
    _places: dict[object, int] = field(default_factory=dict)
    _known: "dict[int, tuple[Call, int]]" = field(default_factory=dict)

    def locate(self, calls: "Sequence[Call]") -> Ints:
        """Return the place of each call, and note those that are new."""
        for one in calls:
            if id(one) not in self._known:
                given = (one.op, one.kernels, one.types, one.concrete, one.dims, one.strides, one.is_backward)
                place = self._places.setdefault(repr(given), len(self.calls))
                if place == len(self.calls):
                    self.calls.append(one)
                self._known[id(one)] = (one, place)
        return np.array([self._known[id(one)][1] for one in calls], np.int64)

    def measure(self, facts: CaptureFacts, gpu: str, measure: Callable[[Trace], MeasuredRun]) -> MeasuredRun:
        """Measure one step of all calls, whose kernels on targets are kept."""
        builder = build_trace(self.calls, repeat(LONG_US), 1.0)
        there = resolve_gpu(gpu).gpu
        describe_capture(builder, replace(facts, gpu=there.slug), there, "variants")
        run = measure(builder.load())
        return replace(run, program=replace(run.program, kernel_tables={}))

    def list_rows(self, places: Ints) -> Ints:
        """List the rows of the kernels of calls, given by their places."""
        begins = np.concatenate([[0], np.cumsum([len(one.kernels) for one in self.calls])])
        counts = begins[places + 1] - begins[places]
        first = np.repeat(begins[places] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        rows: Ints = first + np.arange(counts.sum())
        return rows


@dataclass(frozen=True)
class PredictedVariant:
    """A variant with its prediction, or with why there is none.

    Attributes:
        variant: The variant.
        facts: Its parameters and memory; None where it can't be captured.
        predictions: On each target; None likewise.
        reason: Why there is none.
    """

    variant: Variant
    facts: CaptureFacts | None = None
    predictions: Predictions | None = None
    reason: Message | None = None


@dataclass(frozen=True)
class VariantSearch:
    """How variants are captured, measured and predicted.

    Attributes:
        captures: Captures them.
        setting: What their times depend on besides their GPU.
        cuda_graph: Whether one CUDA graph launches all kernels.
        gpu: The GPU whose times a capture holds; None for the reference.
        measure: Prepares the run of a capture.
        predict: Predicts a run on the targets.
    """

    captures: VariantCaptures
    setting: CaptureSetting
    cuda_graph: bool
    gpu: str | None
    measure: Callable[[Trace], MeasuredRun]
    predict: Callable[[MeasuredRun], Predictions]

    def run(self, variants: Sequence[Variant], progress: ProgressCallback) -> Iterator[PredictedVariant]:
        """Predict the variants, in their order."""
        table = CallTable()
        sized: list[tuple[Variant, SizedProgram | Message, Ints | None]] = []
        for number, variant in enumerate(variants, 1):
            progress(messages.CAPTURING_VARIANT(number=number, variants=len(variants)))
            try:
                step = self.captures.find(variant)
                sized.append((variant, step, table.locate(step.calls)))
            except TracekitError as error:
                sized.append((variant, error.catalogue_message, None))
        known = next((one.facts for _, one, _ in sized if isinstance(one, SizedProgram)), None)
        every = table.measure(known, self.gpu or REFERENCE_GPU, self.measure) if known else None
        if every is not None:
            self.predict(every)
        graphs: dict[object, MeasuredRun] = {}
        for number, (variant, found, places) in enumerate(sized, 1):
            progress(messages.PREDICTING_VARIANT(number=number, variants=len(variants)))
            if not isinstance(found, SizedProgram) or places is None or every is None:
                yield PredictedVariant(variant, reason=found if isinstance(found, Message) else None)
                continue
            try:
                run = _replace_kernels(self._find_graph(graphs, variant, found), every, table.list_rows(places), found)
                yield PredictedVariant(variant, found.facts, self.predict(run))
            except (TracekitError, PredictorError) as error:
                reason = error.catalogue_message if isinstance(error, TracekitError) else error.message
                yield PredictedVariant(variant, found.facts, reason=messages.VARIANT_FAILS(reason=str(reason)))

    def _find_graph(self, graphs: dict[object, MeasuredRun], variant: Variant, found: SizedProgram) -> MeasuredRun:
        """Return a run with the graph of a variant's launches; the first one's of all with the same ops."""
        key = _list_launches(found.calls)
        if key not in graphs:
            whole = found.whole or self.captures.capture(variant).whole
            assert whole is not None
            if key != _list_launches(whole.calls):
                raise CaptureError(messages.DEPTHS_DIFFER())
            trace = load_captured(whole, self.gpu or REFERENCE_GPU, cuda_graph=self.cuda_graph, setting=self.setting)
            graphs[key] = self.measure(trace)
        return graphs[key]


def _list_launches(calls: "Sequence[Call]") -> tuple[tuple[str, int, bool], ...]:
    """List what a dependency graph depends on: each call's op, its number of kernels, and the pass that it is of."""
    return tuple((one.op, len(one.kernels), one.is_backward) for one in calls)


def _replace_kernels(run: MeasuredRun, every: MeasuredRun, rows: Ints, found: SizedProgram) -> MeasuredRun:
    """Return a run with the work and the facts of another program that launches the same ops.

    Args:
        run: The run.
        every: One step of all calls.
        rows: Of its kernels, those of the other program.
        found: The other program.
    """
    program = run.program
    work = every.kernels.drop(GRAPH_COLUMNS)[rows]
    table = program.kernels.select(GRAPH_COLUMNS).hstack(work).select(program.kernels.columns)
    facts = replace(found.facts, gpu=run.gpu.slug if run.gpu else "").to_dict()
    ranks = tuple(replace(one, metadata={**one.metadata, FACTS_KEY: facts}) for one in program.ranks)
    # What isn't predicted is kept as measured.
    measured_us = pl.Series("measured_us", program.kernel_us)
    times = {name: one[rows].with_columns(measured_us) for name, one in (every.program.kernel_tables or {}).items()}
    changed = replace(program.replace_tables(kernels=table), ranks=ranks, kernel_tables=times)
    return replace(run, program=changed)


def predict_each(
    variants: Sequence[Variant],
    path: str,
    predict: "Callable[[str], tuple[Trace, Predictions]]",
    progress: ProgressCallback,
) -> Iterator[PredictedVariant]:
    """Predict variants one by one, for targets whose layouts read each program's own ops.

    Args:
        variants: The variants.
        path: The config's path for messages.
        predict: Captures and predicts the config of a path.
        progress: Called as each variant begins.
    """
    for number, variant in enumerate(variants, 1):
        progress(messages.PREDICTING_VARIANT(number=number, variants=len(variants)))
        with _write_config(variant, path) as name:
            try:
                trace, found = predict(name)
                yield PredictedVariant(variant, trace.rank().capture_facts, found)
            except (TracekitError, PredictorError) as error:
                yield PredictedVariant(variant, reason=messages.VARIANT_FAILS(reason=str(error).replace(name, path)))


@contextmanager
def _write_config(variant: Variant, path: str) -> Iterator[str]:
    """Write a variant's config, and yield its path while it is there."""
    with TemporaryDirectory() as folder:
        name = Path(folder) / Path(path).name
        name.write_text(json.dumps(variant.config))
        yield str(name)


@dataclass(frozen=True)
class ProgramVariants:
    """Variants of a config.

    Attributes:
        axes: The varied keys, each with its values.
        table: A row for each variant on each target, times in microseconds; ``reason`` says why one has none.
        unit: What ``per_second`` counts.
        notes: What is said of all that were predicted.
    """

    axes: Mapping[str, Sequence[Value]]
    table: pl.DataFrame
    unit: str
    notes: tuple[Message, ...]

    @classmethod
    def of(cls, axes: Mapping[str, Sequence[Value]], found: Sequence[PredictedVariant]) -> "ProgramVariants":
        """Tabulate predicted variants.

        Raises:
            CaptureError: None could be predicted.
        """
        known = [one for one in found if one.predictions is not None]
        if not known:
            raise CaptureError(messages.VARIANTS_FAIL(variants=len(found), reason=str(found[0].reason)))
        rows = [row for one in found for row in _build_rows(one)]
        keys = {key: _choose_type(values) for key, values in axes.items()}
        said = [{*target.notes} for one in known if one.predictions for target in one.predictions.targets]
        first = next(target for one in known if one.predictions for target in one.predictions.targets)
        return cls(
            axes,
            pl.DataFrame(rows, schema={**keys, **COLUMNS}, orient="row"),
            first.batch.unit if first.batch else "steps",
            tuple(note for note in first.notes if all(note in notes for notes in said)),
        )

    def to_polars(self) -> pl.DataFrame:
        """Return the table."""
        return self.table

    def to_pandas(self) -> "pd.DataFrame":
        """Return the table.

        Raises:
            TracekitError: pandas isn't installed.
        """
        from tracekit.interop.pandas import to_pandas_frame

        return to_pandas_frame(self.table)


COLUMNS: dict[str, type[pl.DataType]] = {
    "gpu": pl.String,
    "parameters": pl.Int64,
    "step_time_us": pl.Float64,
    "low_us": pl.Float64,
    "high_us": pl.Float64,
    "per_second": pl.Float64,
    "memory_bytes": pl.Float64,
    "fits_in_memory": pl.Boolean,
    "dollars_per_1000_steps": pl.Float64,
    "reason": pl.String,
}


def _choose_type(values: Sequence[object]) -> type[pl.DataType]:
    for kind, of in ((bool, pl.Boolean), (int, pl.Int64), (int | float, pl.Float64)):
        if all(isinstance(one, kind) and isinstance(one, bool) == (kind is bool) for one in values):
            return of
    return pl.String


def _build_rows(one: PredictedVariant) -> Iterator[dict[str, object]]:
    told = dict(one.variant.values)
    parameters = one.facts.parameters if one.facts else None
    if one.predictions is None:
        yield {**told, "parameters": parameters, "reason": str(one.reason)}
        return
    for target in one.predictions.targets:
        yield {
            **told,
            "gpu": target.label,
            "parameters": parameters,
            "step_time_us": target.step.step_time_us,
            "low_us": target.low_us,
            "high_us": target.high_us,
            "per_second": target.per_second,
            "memory_bytes": target.memory.max_bytes,
            "fits_in_memory": target.memory.fits,
            "dollars_per_1000_steps": target.dollars_per_1000_steps,
        }
    for refused in one.predictions.refused:
        yield {**told, "gpu": refused.label, "parameters": parameters, "reason": str(refused.error)}
