"""How a job is laid out over its ranks: data, tensor, pipeline and expert parallel, told from its process groups."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real

import polars as pl

from tracekit.errors import TracekitError
from tracekit.prediction.messages import messages
from tracekit.replay.run import Run
from tracekit.units import many, shorten
from tracekit.workload.phases import BACKWARD, OPTIMIZER
from tracekit.workload.shares import share

NAMED: Mapping[str, str] = {
    "tp": r"(?i)tensor|(?:^|_)tp(?:_|$)",
    "pp": r"(?i)pipe|(?:^|_)pp(?:_|$)",
    "edp": r"(?i)expert data parallel ranks|expert_data|(?:^|_)edp(?:_|$)",
    "ep": r"(?i)expert|(?:^|_)ep(?:_|$)",
    "dp": r"(?i)data|fsdp|ddp|shard|replicate|(?:^|_)dp(?:_|$)",
}
"""What jobs call their groups: torch's device meshes (mesh_tp) and Megatron (TENSOR_MODEL_PARALLEL_GROUP)."""

COPIES, PARTS = "data parallel ranks", "tensor parallel ranks"
SHARERS, EXPERT_COPIES = "expert parallel ranks", "expert data parallel ranks"
"""What groups of ranks are called that the trace's job doesn't have."""

SCHEDULE = re.compile(r"1f1b|zero-bubble|interleaved(?::([2-9]|[1-9]\d+))?", re.IGNORECASE)
"""Names of pipelines' schedules."""

GROUP = ("process_group", "group_description", "ranks", "stride")

LEAST_BATCH, MOST_BATCH = 0.001, 1e6
"""Factors on the batch that can be meant."""

OVERLOOKED = 5.0
"""Percent of GPU time that may stay as it is because nothing is known of its work: the most that it can be wrong by."""


class LayoutError(TracekitError):
    """The job can't be laid out like that, or it can't be told how the trace's is."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks of a job; their number is dp x tp x pp.

    Attributes:
        dp: Data-parallel replicas, which share out the batch.
        tp: Tensor-parallel ranks, which share each layer.
        pp: Pipeline stages.
        ep: Expert-parallel ranks, which share the experts or tables, among the dp x tp of a stage.
        sharded: Whether parameters, gradients and optimizer state are shared out over dp (FSDP, ZeRO).
        micro_batches: Passes of a step through the stages; None where nothing else was asked for.
        chunks: Of layers on each stage: 1 for plain 1F1B, more if they are interleaved.
        batch: Of a rank's pass, over that in the trace.
        zero_bubble: Whether stages put off weights' gradients until they would wait (ZB-H1).
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    sharded: bool = False
    micro_batches: int | None = None
    chunks: int = 1
    batch: float = 1.0
    zero_bubble: bool = False

    @property
    def world_size(self) -> int:
        """All ranks."""
        return self.dp * self.tp * self.pp

    @property
    def of_one_stage(self) -> "Layout":
        """The ranks of one stage, as a job of their own."""
        return replace(self, pp=1, micro_batches=None, chunks=1, zero_bubble=False)

    @property
    def senders(self) -> int:
        """Replicas that send tokens to each other's experts; tensor-parallel ranks have their parts of experts too."""
        return self.ep if self.tp == 1 else 1

    @property
    def shards(self) -> int:
        """Ranks that share out each parameter's state."""
        return self.dp if self.sharded else 1

    def ranks(self, role: str) -> int:
        """Ranks of the groups of one role."""
        return {"dp": self.dp, "tp": self.tp, "pp": self.pp, "ep": self.ep, "edp": self.dp // self.senders}[role]

    def stride(self, role: str) -> int:
        """Distance of neighbours in such a group: tp is innermost, pp outermost, as in Megatron and torch's meshes."""
        return {"tp": 1, "ep": self.tp, "dp": self.tp, "pp": self.tp * self.dp, "edp": self.senders}[role]

    @property
    def parallel(self) -> str:
        """Such as ``dp 8 (sharded) x tp 2``."""
        parts = [f"{name} {self.ranks(name)}" for name in ("tp", "pp") if self.ranks(name) > 1]
        return " x ".join([f"dp {self.dp}{' (sharded)' if self.sharded else ''}", *parts])

    def __str__(self) -> str:
        """Such as ``16 ranks = dp 8 (sharded) x tp 2``."""
        experts = f", ep {self.ep}" if self.ep > 1 else ""
        batch = f", {self.batch:g} times the batch" if self.batch != 1 else ""
        ranks = "rank" if self.world_size == 1 else "ranks"
        return f"{self.world_size} {ranks} = {self.parallel}{experts}{batch}"


def scheduled(name: str | None) -> tuple[int | None, bool | None]:
    """Chunks of layers on each stage of a pipeline, and whether weights' gradients are put off, by a schedule's name.

    Args:
        name: ``1f1b``, ``zero-bubble``, ``interleaved`` or ``interleaved:N``; None for what is usual.

    Raises:
        LayoutError: There is no such schedule.
    """
    if name is None:
        return None, None
    schedule = SCHEDULE.fullmatch(name)
    if not schedule:
        raise LayoutError(
            f"there is no schedule {name!r}.",
            "Say 1f1b, zero-bubble, interleaved, or interleaved:N with at least 2 chunks a stage.",
        )
    chunks = int(schedule[1] or 2) if name.lower().startswith("interleaved") else 1
    return chunks, name.lower() == "zero-bubble"


@dataclass(frozen=True, slots=True)
class Change:
    """What is asked of a layout; None leaves a number as it is.

    Attributes:
        world_size: All ranks.
        dp: Data-parallel replicas.
        tp: Tensor-parallel ranks of each layer.
        pp: Pipeline stages.
        ep: Expert-parallel ranks.
        micro_batches: Passes of a step through the stages.
        chunks: Of layers on each stage.
        batch: Of a rank, over that in the trace.
        sharded: Whether parameters, gradients and optimizer state are to be shared out over dp.
        zero_bubble: Whether stages are to put off weights' gradients until they would wait.

    Raises:
        LayoutError: A number is out of its range.
    """

    world_size: int | None = None
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    micro_batches: int | None = None
    chunks: int | None = None
    batch: float | None = None
    sharded: bool | None = None
    zero_bubble: bool | None = None

    def __post_init__(self) -> None:
        for name in ("world_size", "dp", "tp", "pp", "ep", "micro_batches", "chunks"):
            number = getattr(self, name)
            if number is not None and not (isinstance(number, Integral) and int(number) >= 1):
                raise LayoutError(f"{name.replace('_', ' ')} can't be {number!r}.", "Give a whole number, 1 or more.")
        if self.batch is not None and not (isinstance(self.batch, Real) and LEAST_BATCH <= self.batch <= MOST_BATCH):
            raise LayoutError(
                f"the batch can't be {self.batch!r} times the traced one.",
                f"Give {LEAST_BATCH:g} to {MOST_BATCH:,.0f}.",
            )

    @property
    def asked(self) -> bool:
        """Whether it asks for anything."""
        return self != Change()


def shares_experts(old: Layout, new: Layout) -> bool:
    """Whether replicas come to share experts that each rank had whole.

    Args:
        old: The trace's layout.
        new: Another one.
    """
    return old.ep == 1 < new.senders


def check_known(computed: pl.DataFrame, what: str) -> None:
    """Refuse to change what kernels work on where too much of that isn't known.

    Args:
        computed: The kernels that the change is about.
        what: Is changed, for the message.

    Raises:
        LayoutError: Over ``OVERLOOKED`` percent of their time.
    """
    unknown = share(computed, "dur_ns", pl.col("work_from").is_null())
    if unknown > OVERLOOKED:
        message = f"{what} can't be changed: {unknown:.0f} % of GPU time has no known work"
        if computed["input_dims"].is_null().all():
            raise LayoutError(f"{message}.", "Record with record_shapes=True.")
        of = computed.filter(pl.col("work_from").is_null()).group_by(pl.coalesce("op", "name").alias("of"))
        largest = of.agg(pl.col("dur_ns").sum()).sort("dur_ns", "of").row(-1, named=True)["of"]
        raise LayoutError(f"{message}, most of it of {shorten(largest, 60)}.")


def groups(run: Run) -> pl.DataFrame:
    """The collectives of a run by the role of their group: ``row`` of the kernel table, ``role``, and ``put_in``.

    Names tell it where the job gives them. Else sends are pipeline, all-to-alls expert parallel; all-gathers and
    reduce-scatters are sharded data parallel in training, tensor parallel in inference; all-reduces are tensor
    parallel in inference and where they are custom kernels, else data parallel. The largest messages of a group decide.

    Args:
        run: The measured run.
    """
    calls = messages(run.kernels, run.trace.world_size)
    rows = run.kernels.select("process_group", "group_description")[calls["row"]]
    table = calls.hstack(rows)
    inside = pl.lit("dp" if trains(run) else "tp")
    named = [pl.when(pl.col("group_description").str.contains(text)).then(pl.lit(role)) for role, text in NAMED.items()]
    role = pl.coalesce(
        *named,
        pl.when("custom").then(pl.lit("tp")),
        pl.when(pl.col("collective") == "send_recv").then(pl.lit("pp")),
        pl.when(pl.col("collective") == "all_to_all").then(pl.lit("ep")),
        inside,
    )
    apart = pl.when(pl.col("collective").is_in(["all_to_all", "send_recv"])).then(pl.col("collective"))
    return table.with_columns(role=role, apart=apart).select(
        "row",
        put_in=pl.col("group_description").is_in([COPIES, PARTS, SHARERS, EXPERT_COPIES]).fill_null(False),
        role=pl.col("role").sort_by(pl.col("bytes").fill_null(0.0), descending=True).first().over(*GROUP, "apart"),
    )


def recognise(run: Run) -> Layout:
    """The layout of a traced job.

    Args:
        run: The measured run.

    Raises:
        LayoutError: Its groups don't add up to its ranks.
    """
    world = run.trace.world_size
    calls = messages(run.kernels, world).join(groups(run), on="row")
    sizes = dict(calls.group_by("role").agg(pl.col("ranks").max()).iter_rows())
    tp, pp = sizes.get("tp", 1), sizes.get("pp", 1)
    dp = world // (tp * pp)
    if dp * tp * pp != world or sizes.get("dp", dp) not in (dp, world):
        told = ", ".join(f"{name} {ranks}" for name, ranks in sorted(sizes.items()))
        raise LayoutError(f"the trace's groups ({told}) don't add up to its {world} ranks.")
    summed = calls.filter(pl.col("role") == "dp").group_by("collective").agg(pl.col("bytes").sum())
    moved = dict(summed.iter_rows())
    sharded = moved.get("reduce_scatter", 0.0) > moved.get("all_reduce", 0.0)
    return Layout(dp=dp, tp=tp, pp=pp, ep=sizes.get("ep", 1), sharded=sharded)


def layout_of(run: Run, change: Change) -> Layout | None:
    """The layout of a traced job; None where it can't be told and need not be.

    Raises:
        LayoutError: It can't be told, and a change is asked for.
    """
    try:
        return recognise(run)
    except LayoutError:
        if change.asked:
            raise
        return None


def resized(layout: Layout, change: Change) -> Layout:
    """A layout with other numbers; data parallelism takes up what the world size leaves.

    Experts that were shared out over all ranks stay so.

    Args:
        layout: Of the trace.
        change: The numbers.

    Raises:
        LayoutError: The numbers don't fit each other.
    """
    tp, pp = change.tp or layout.tp, change.pp or layout.pp
    sharing = _to_share(layout, change, tp) if layout.ep == 1 < (change.ep or 1) else layout.dp
    left = change.world_size // (tp * pp) if change.world_size else sharing
    dp = left if change.dp is None else change.dp
    if dp < 1 or (change.world_size and dp * tp * pp != change.world_size):
        ranks = many(change.world_size or 0, "rank")
        raise LayoutError(f"{ranks} can't be laid out as dp {max(dp, 1)} x tp {tp} x pp {pp}.")
    everyone = layout.ep > 1 and layout.ep == layout.dp * layout.tp
    ep = change.ep or (dp * tp if everyone else layout.ep)
    if dp * tp % ep:
        raise LayoutError(f"ep {ep} doesn't divide the {many(dp * tp, 'rank')} of a stage.")
    if change.micro_batches or change.chunks or change.zero_bubble:
        if pp == 1:
            raise LayoutError("micro-batches and schedules need pipeline parallelism:", "say --pp too.")
        if layout.pp > 1:
            raise LayoutError("the schedule of the trace's own pipeline can't be changed: its stages are as recorded.")
    if change.batch and layout.pp > 1:
        raise LayoutError("the micro-batches of the trace's own pipeline can't be changed: its sends are as recorded.")
    sharded = layout.sharded or _to_shard(layout, change, dp)
    return Layout(
        dp, tp, pp, ep, sharded, change.micro_batches, change.chunks or 1, change.batch or 1.0, bool(change.zero_bubble)
    )


def _to_share(layout: Layout, change: Change, tp: int) -> int:
    """The replicas of a job that is to share its experts: at least as many as share them, unless a layer's ranks do."""
    if layout.world_size > 1:
        raise LayoutError(
            "the trace has several ranks without expert parallelism: its all-to-alls can't be predicted.",
            "Give the trace of one GPU, or of an expert-parallel job.",
        )
    if change.sharded and (change.pp or 1) > 1:
        raise LayoutError(
            "expert parallelism with both FSDP and pipeline parallelism isn't supported:", "leave out --fsdp or --pp."
        )
    if tp == 1:
        return change.ep or 1
    if change.ep != tp:
        raise LayoutError(
            f"experts are split over data-parallel or the {tp} tensor-parallel ranks, not over {change.ep} of both:",
            f"leave out --tp, or say --ep {tp}.",
        )
    return layout.dp


def _to_shard(layout: Layout, change: Change, dp: int) -> bool:
    """Whether a job that isn't sharded is to be."""
    if not change.sharded:
        return False
    if layout.dp > 1:
        raise LayoutError("the trace's own data parallelism can't be turned into FSDP:", "give a one-GPU trace.")
    if dp == 1 and change.dp is None and change.world_size is None:
        raise LayoutError("FSDP needs several data-parallel ranks:", "say how many by --dp or --world-size.")
    return dp > 1


def trains(run: Run) -> bool:
    """Whether the trace has a backward pass; where autograd's ops weren't recorded its kernels tell."""
    recorded = run.trace.ops["name"].str.contains("autograd::|AccumulateGrad").any()
    return bool(recorded) or run.kernels["phase"].is_in([BACKWARD, OPTIMIZER]).any()
