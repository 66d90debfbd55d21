"""Infer from a model's first layers how many samples or tokens a step processes."""

import math
from dataclasses import dataclass, replace

import polars as pl

from tracekit.arrays import find_nulls, mark_equal, select_any, select_table
from tracekit.errors import StepError
from tracekit.ingest.batches import Speculation, find_speculation, select_outermost
from tracekit.ingest.cuda_graph_captures import GRAPH_LAUNCH_CALLS
from tracekit.kept import keep_on_first
from tracekit.messages import Message
from tracekit.messages.traces import ACCEPTANCE_UNKNOWN
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.process_groups import is_training
from tracekit.program import Program
from tracekit.run import MeasuredRun
from tracekit.workload.signature import Signature
from tracekit.workload.steps import assign_steps

FIRST_LAYERS = {
    "aten::embedding": ("tokens", 0, 1),
    "aten::conv2d": ("samples", 1, 0),
    "aten::conv1d": ("samples", 1, 0),
    "aten::conv3d": ("samples", 1, 0),
}
"""For each op: the unit, the input that holds the weights, and the input that holds the batch.

The batch size is the number of elements of that input for tokens, and its first dimension for samples.
"""


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The samples or tokens that one rank, or all ranks of a job together, process in a step.

    Attributes:
        size: Number of units, in the mean step.
        unit: 'samples' or 'tokens'; 'steps' of a replica in a sweep of a trace that reveals neither.
        passes: Calls of the first layer per rank and step, such as one for each diffusion step.
        given: Whether the caller gave the size.
        marked: Whether a serving engine's annotation gave the size.
        least: The least number, where nobody tells how many speculated tokens are accepted; None where the number is
            known.
        most: The largest number, likewise.
        phase: Kind of a serving engine's step: prefill, decode or mixed; None of other steps.
        accepted: Tokens that a sequence gets in a step that speculates: likely, least and most; None of others.
    """

    size: float
    unit: str
    passes: int = 1
    given: bool = False
    marked: bool = False
    least: float | None = None
    most: float | None = None
    phase: str | None = None
    accepted: tuple[float, float, float] | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest number."""
        return (self.size if self.least is None else self.least, self.size if self.most is None else self.most)

    def scale(self, factor: float) -> "StepBatch":
        """Return a batch that is ``factor`` times as large."""
        least, most = (None if end is None else end * factor for end in (self.least, self.most))
        return replace(self, size=self.size * factor, least=least, most=most)

    def compute_throughput(self, step_time_us: float) -> float:
        """Return the units processed per second by steps of this duration."""
        return self.size / step_time_us * 1e6


def infer_job_batch(program: Program, layout: Layout | None, samples: float | None = None) -> StepBatch | None:
    """Infer what all replicas of a traced job process in a step; None where it is unknown.

    Args:
        program: The program.
        layout: Layout of the job; None where it is unknown.
        samples: Samples that one rank processes, given by the caller; None to infer them from the trace.
    """
    batch = infer_rank_batch(program, samples)
    return batch.scale(layout.dp) if batch and layout else None


@keep_on_first
def infer_rank_batch(program: Program, samples: float | None = None) -> StepBatch | None:
    """Infer what one rank processes in a step (the mean of several steps).

    A serving engine annotates the tokens of its batches; of those that it speculates, the accepted ones count.
    Otherwise the result is None where the first layer is neither a convolution nor an embedding with recorded shapes,
    and where inference replays CUDA graphs, whose ops aren't recorded; but a captured program may know its batch.

    Args:
        program: The program.
        samples: Samples that one rank processes, given by the caller; None to infer them from the trace.
    """
    if samples is None:
        return _read_engine_batch(program) or _infer_batch(program) or _read_captured_batch(program)
    return StepBatch(float(samples), "samples", given=True)


def _read_engine_batch(program: Program) -> StepBatch | None:
    """Read the batch of an engine's step from a config: a token of each sequence that decodes, or whole prompts."""
    facts = program.trace.capture_facts
    if not facts or not facts.engine:
        return None
    phase = "decode" if facts.tokens == facts.batch else "prefill"
    return StepBatch(float(facts.tokens), "tokens", given=True, phase=phase)


def _read_captured_batch(program: Program) -> StepBatch | None:
    facts = program.trace.capture_facts
    return StepBatch(float(facts.batch), "samples", given=True) if facts and facts.batch else None


def _infer_batch(program: Program) -> StepBatch | None:
    chosen_steps = select_table(
        program.chosen_steps, mark_equal(program.chosen_steps["rank"], program.chosen_steps["rank"][0])
    )
    if chosen_steps["kind"].n_unique() > 1:
        return None  # the mean of prefill and decode batches is the size of neither
    if chosen_steps["tokens"].null_count() < chosen_steps.height:
        return _read_marked_batch(program, chosen_steps)
    layers = program.trace.ops[select_any(program.trace.ops["name"], FIRST_LAYERS)]
    ops = select_table(layers, ~find_nulls(layers["input_dims"]))
    if ops.is_empty():
        return None
    chosen = ops.with_columns(step=assign_steps(ops["ts_ns"], chosen_steps)).drop_nulls("step")
    layers = select_outermost(chosen, "pid", "tid")  # autocast calls a layer again from within itself
    if layers.is_empty() or (not is_training(program) and program.trace.has_named("calls", GRAPH_LAUNCH_CALLS)):
        return None
    first = layers["name"][0]
    unit, weight, data = FIRST_LAYERS[first]
    layers = layers.filter(pl.col("name") == first)
    inputs = [Signature.parse(first, dims, None, None) for dims in layers["input_dims"]]
    weights = [one.get_shape(weight) for one in inputs]
    sizes = pl.Series([_count_samples_or_tokens(one.get_shape(data), unit) for one in inputs], dtype=pl.Int64)
    calls = layers.select("step", size=sizes).filter(pl.Series([one == weights[0] for one in weights]) & (sizes > 0))
    steps = calls.group_by("step").agg(pl.col("size").sum(), passes=pl.len()).sort("size", "passes")
    if steps.is_empty():
        return None
    _, _, passes = steps.row(steps.height // 2)
    return StepBatch(float(steps["size"].mean()), unit, passes)  # type: ignore[arg-type]


def _read_marked_batch(program: Program, chosen_steps: pl.DataFrame) -> StepBatch:
    """Read a serving engine's batch; of speculated tokens those accepted count, as given or as they may be."""
    tokens = float(chosen_steps["tokens"].mean())  # type: ignore[arg-type]
    speculated = find_speculation(program.trace, chosen_steps["start_ns"])
    phase = chosen_steps["kind"][0]
    if speculated is None:
        return StepBatch(tokens, "tokens", marked=True, phase=phase)
    others, accepted = max(tokens - speculated.verified, 0.0), _accept(program, speculated)
    likely, *ends = (others + speculated.sequences * one for one in accepted)
    least, most = ends if program.accepted_tokens is None else (None, None)
    return StepBatch(likely, "tokens", marked=True, least=least, most=most, phase=phase, accepted=accepted)


def infer_accepted_tokens(program: Program) -> tuple[float, float, float] | None:
    """Infer how many speculated tokens a sequence gets in a step; None without speculative decoding.

    Returns:
        The likely number, the least and the largest.
    """
    chosen = program.chosen_steps.filter(rank=program.chosen_steps["rank"][0])
    found = find_speculation(program.trace, chosen["start_ns"])
    return None if found is None else _accept(program, found)


def _accept(program: Program, speculated: Speculation) -> tuple[float, float, float]:
    """Return the likely, least and largest number of tokens that are accepted, as given or as they may be.

    Of 4 tokens that are verified for a sequence 1 to 4 are accepted. If nobody knows more, the geometric mean, 2, is as
    far from both.
    """
    most = speculated.per_sequence
    given = program.accepted_tokens
    return (math.sqrt(most), 1.0, most) if given is None else (min(given, most),) * 3


def note_open_acceptance(batch: StepBatch | None) -> list[Message]:
    """Note that nobody tells how many speculated tokens are accepted, and what is assumed."""
    if batch is None or batch.least is None or batch.most is None:
        return []
    return [ACCEPTANCE_UNKNOWN(least=batch.least, most=batch.most, likely=batch.size)]


def _count_samples_or_tokens(shape: tuple[int, ...] | None, unit: str) -> int:
    if shape is None:
        return 0
    return math.prod(shape) if unit == "tokens" else next(iter(shape), 0)


UNNAMED_KIND = "batch"
"""Kind of the batches of an engine that doesn't tell it."""
KIND = pl.col("kind").fill_null(UNNAMED_KIND)
KIND_ORDER = ("prefill", "mixed", "decode")


def separate_batches(run: MeasuredRun) -> dict[str, MeasuredRun]:
    """Return the run with each kind of batch measured alone; empty if no serving engine marked its steps.

    Of chosen steps of one kind, which is what is measured by default, the others of the trace count too.
    """
    if run.chosen_steps["tokens"].null_count() == run.chosen_steps.height:
        return {}
    chosen = run.chosen_steps.select(KIND)["kind"].unique()
    steps = run.steps if len(chosen) == 1 else run.asked_steps
    found: dict[str, MeasuredRun] = {}
    for kind in steps.select(KIND)["kind"].unique(maintain_order=True):
        if chosen.to_list() == [kind]:
            found[kind] = run
        elif (alone := _measure_kind(run, steps.filter(kind == KIND))) is not None:
            found[kind] = alone
    return dict(sorted(found.items(), key=lambda item: _find_place(item[0])))


def _measure_kind(run: MeasuredRun, steps: pl.DataFrame) -> MeasuredRun | None:
    """Return the run with some steps measured; None if nothing ran on the GPU in them."""
    try:
        measured = run.measure_steps(steps)
    except StepError:
        return None
    return measured if measured.measured_step.step_time_us > 0 else None


def _find_place(kind: str) -> tuple[int, str]:
    return (KIND_ORDER.index(kind) if kind in KIND_ORDER else len(KIND_ORDER), kind)
