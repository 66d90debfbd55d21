"""Layouts of a job: its data-, context-, tensor-, pipeline- and expert-parallel ranks, and requests for others."""

import re
from dataclasses import dataclass, replace

from tracekit.errors import RequestError, TracekitError
from tracekit.messages import layouts
from tracekit.parallelism.compressions import CAST_TYPES
from tracekit.parallelism.sharded_tables import TableSharding

SCHEDULE_NAME = re.compile(r"1f1b|zero-bubble|interleaved(?::([2-9]|[1-9][0-9]{1,5}))?", re.IGNORECASE)
"""Names of pipeline schedules."""


class LayoutError(TracekitError):
    """The job can't be laid out in this way, or the trace's layout is unknown."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The ranks of a job; their number is dp x cp x tp x pp.

    Attributes:
        dp: Data-parallel replicas, which split the batch.
        tp: Tensor-parallel ranks, which split each layer.
        pp: Pipeline stages.
        ep: Expert-parallel ranks, which split the experts or embedding tables, among the other ranks of a stage.
        sharded: Whether parameters, gradients and optimizer state are sharded over dp x cp (FSDP, ZeRO).
        micro_batches: Micro-batches in a step; None for the default.
        chunks: Chunks of layers on each stage: 1 for plain 1F1B, more for interleaved schedules.
        batch: Batch of a rank's pass, relative to the trace's.
        context: Keys of each sequence of a decode batch; None as in the trace.
        zero_bubble: Whether stages defer weight gradients until they would wait (ZB-H1).
        splits_tables: Whether it is embedding tables that ``ep`` ranks split, not experts.
        plan: File of the plan by which tables are sharded; None for the fastest.
        tables: What sharded tables that the trace had whole make a rank do.
        zero: Stage of ZeRO by which the optimizer is sharded over dp: 1, or 2 with the gradients; 0 for none, and for
            FSDP.
        sequence_parallel: Whether tensor-parallel ranks split the tokens between their blocks, too.
        cp: Context-parallel ranks, which split each sequence and exchange keys and values.
        cp_ring: Whether they pass these around in a ring beside attention, in place of gathering all before it.
        gradient_compression: Type to which gradients are cast for their all-reduces; None as they are.
        sync_every: Steps after which replicas average their parameters (local SGD); 1 where they reduce gradients in
            each step.
        sync_within: Neighbouring replicas that reduce gradients in each step between two averages.
        balance: Whether replicas, or stages, on several kinds of GPUs share the work by speed.
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
    context: int | None = None
    splits_tables: bool = False
    plan: str | None = None
    tables: TableSharding | None = None
    sequence_parallel: bool = False
    zero: int = 0
    cp: int = 1
    cp_ring: bool = False
    gradient_compression: str | None = None
    sync_every: int = 1
    sync_within: int = 1
    balance: bool = False

    @property
    def world_size(self) -> int:
        """Number of all ranks."""
        return self.data_ranks * self.tp * self.pp

    @property
    def data_ranks(self) -> int:
        """Number of ranks that have the same parameters: they reduce their gradients together, or shard them."""
        return self.dp * self.cp

    @property
    def stage_layout(self) -> "Layout":
        """Layout of one stage's ranks, as a job of their own."""
        return replace(self, pp=1, micro_batches=None, chunks=1, zero_bubble=False)

    @property
    def expert_parallel_replicas(self) -> int:
        """Number of replicas among which experts are split, besides the tensor-parallel ranks of each."""
        return max(self.ep // self.tp, 1)

    @property
    def mixes_expert_ranks(self) -> bool:
        """Whether tensor-parallel ranks of several replicas split experts: each sends its own tokens to all of them."""
        return 1 < self.tp < self.ep and not self.splits_tables

    @property
    def fsdp_ranks(self) -> int:
        """Number of ranks that shard each parameter's state."""
        return self.data_ranks if self.sharded else 1

    @property
    def optimizer_ranks(self) -> int:
        """Number of ranks that share each update of the parameters."""
        return self.data_ranks if self.sharded or self.zero else 1

    def get_group_size(self, role: str) -> int:
        """Return the number of ranks in a group of this role."""
        return {
            "dp": self.data_ranks,
            "cp": self.cp,
            "tp": self.tp,
            "pp": self.pp,
            "ep": self.ep,
            "edp": self.data_ranks // self.expert_parallel_replicas,
            "near": self.sync_within,
        }[role]

    def get_group_stride(self, role: str) -> int:
        """Return the distance between neighbouring ranks of a group of this role.

        tp is innermost, then cp, and pp outermost, as in Megatron and in torch's device meshes.
        """
        return {
            "tp": 1,
            "cp": self.tp,
            "ep": 1 if self.mixes_expert_ranks else self.tp,
            "dp": self.tp,
            "pp": self.tp * self.data_ranks,
            "edp": self.tp * self.expert_parallel_replicas,
            "near": self.tp,
        }[role]

    @property
    def parallelism(self) -> str:
        """Text such as ``dp 8 (sharded) x tp 2``."""
        within = " (sequence parallel)" if self.sequence_parallel else ""
        splits = (("cp", self.cp, " (ring)" if self.cp_ring else ""), ("tp", self.tp, within), ("pp", self.pp, ""))
        parts = [f"{name} {ranks}{how}" for name, ranks, how in splits if ranks > 1]
        within_dp = " (sharded)" if self.sharded else f" (ZeRO {self.zero})" if self.zero else ""
        return " x ".join([f"dp {self.dp}{within_dp}", *parts])

    def __str__(self) -> str:
        """Return text such as ``16 ranks = dp 8 (sharded) x tp 2``."""
        split = "tables over" if self.splits_tables else "ep"
        over = self.dp if self.tables else self.ep
        experts = f", {split} {over}" if over > 1 and (self.ep > 1 or self.tables) else ""
        batch = f", {self.batch:g} times the batch" if self.batch != 1 else ""
        context = f", {self.context} keys a sequence" if self.context else ""
        ranks = "rank" if self.world_size == 1 else "ranks"
        return f"{self.world_size} {ranks} = {self.parallelism}{experts}{batch}{context}{self._exchange}"

    @property
    def _exchange(self) -> str:
        """Text such as ``, bf16 gradients`` or ``, averaged every 100 steps``; empty for DDP's own exchange."""
        compressed = f", {self.gradient_compression} gradients" if self.gradient_compression else ""
        within = f" ({self.sync_within} reduce each)" if self.sync_within > 1 else ""
        averaged = f", averaged every {self.sync_every} steps{within}" if self.sync_every > 1 else ""
        return compressed + averaged + (", work by speed" if self.balance else "")


def parse_schedule(name: str | None) -> tuple[int | None, bool | None]:
    """Parse a schedule's name; return the chunks of layers on each stage, and whether weight gradients are deferred.

    Args:
        name: ``1f1b``, ``zero-bubble``, ``interleaved`` or ``interleaved:N``; None for the default.

    Raises:
        RequestError: There is no such schedule.
    """
    if name is None:
        return None, None
    schedule = SCHEDULE_NAME.fullmatch(name)
    if not schedule:
        raise RequestError(layouts.SCHEDULE_UNKNOWN(name=name))
    chunks = int(schedule[1] or 2) if name.lower().startswith("interleaved") else 1
    return chunks, name.lower() == "zero-bubble"


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """The requested layout; None leaves a number as in the trace.

    Attributes:
        world_size: Number of all ranks.
        dp: Data-parallel replicas.
        tp: Tensor-parallel ranks of each layer.
        pp: Pipeline stages.
        ep: Expert-parallel ranks.
        micro_batches: Micro-batches in a step.
        chunks: Chunks of layers on each stage.
        batch: Batch of a rank, relative to the trace's.
        fsdp: Whether to shard parameters, gradients and optimizer state over dp.
        zero: Stage of ZeRO by which to shard the optimizer over dp, 1 or 2.
        zero_bubble: Whether stages defer weight gradients until they would wait.
        context: Keys of each sequence of a decode batch.
        plan: File of a sharding plan of embedding tables.
        sequence_parallel: Whether tensor-parallel ranks split the tokens between their blocks.
        cp: Context-parallel ranks of each sequence.
        cp_ring: Whether they pass keys and values around in a ring.
        gradient_compression: Type to which gradients are cast for their all-reduces.
        sync_every: Steps after which replicas average their parameters.
        sync_within: Neighbouring replicas that reduce gradients in each step.
        balance: Whether replicas, or stages, on several kinds of GPUs share the work by speed.
    """

    world_size: int | None = None
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    micro_batches: int | None = None
    chunks: int | None = None
    batch: float | None = None
    fsdp: bool | None = None
    zero: int | None = None
    zero_bubble: bool | None = None
    context: int | None = None
    plan: str | None = None
    sequence_parallel: bool | None = None
    cp: int | None = None
    cp_ring: bool | None = None
    gradient_compression: str | None = None
    sync_every: int | None = None
    sync_within: int | None = None
    balance: bool | None = None

    @property
    def has_changes(self) -> bool:
        """True if any number is requested."""
        return self != LayoutRequest()


def adds_expert_parallelism(old: Layout, new: Layout) -> bool:
    """Return whether replicas split experts that each rank had whole.

    Args:
        old: The trace's layout.
        new: Another one.
    """
    return old.ep == 1 < new.expert_parallel_replicas and new.tables is None


def apply_request(layout: Layout, request: LayoutRequest) -> Layout:
    """Apply a layout request to a layout; data parallelism takes the ranks that the world size leaves.

    Experts that were split over all ranks of a stage stay so.

    Args:
        layout: Layout of the trace.
        request: The requested numbers.

    Raises:
        LayoutError: The numbers don't match.
    """
    tp, pp, cp = request.tp or layout.tp, request.pp or layout.pp, request.cp or layout.cp
    sharing = _choose_expert_replicas(layout, request, tp) if layout.ep == 1 < (request.ep or 1) else layout.dp
    left = request.world_size // (tp * pp * cp) if request.world_size else sharing
    dp = left if request.dp is None else request.dp
    if dp < 1 or (request.world_size and dp * cp * tp * pp != request.world_size):
        context = f" x cp {cp}" if cp > 1 else ""
        ranks = request.world_size or 0
        raise LayoutError(layouts.RANKS_DONT_FACTOR(ranks=ranks, dp=max(dp, 1), context=context, tp=tp, pp=pp))
    everyone = layout.ep > 1 and layout.ep == layout.dp * layout.tp
    ep = request.ep or (dp * cp * tp if everyone else layout.ep)
    if dp * cp * tp % ep:
        raise LayoutError(layouts.EXPERT_PARALLEL_INDIVISIBLE(ep=ep, ranks=dp * cp * tp))
    if request.micro_batches or request.chunks or request.zero_bubble:
        if pp == 1:
            raise LayoutError(layouts.SCHEDULE_WITHOUT_STAGES())
        if layout.pp > 1:
            raise LayoutError(layouts.RECORDED_SCHEDULE_FIXED())
    if request.batch and layout.pp > 1:
        raise LayoutError(layouts.RECORDED_MICRO_BATCHES_FIXED())
    if request.sequence_parallel and tp == 1:
        raise LayoutError(layouts.SEQUENCE_PARALLEL_OF_ONE_RANK())
    if request.sequence_parallel and layout.tp > 1:
        raise LayoutError(layouts.RECORDED_TENSOR_PARALLEL_FIXED())
    if request.cp_ring and cp == 1:
        raise LayoutError(layouts.RING_OF_ONE_RANK())
    sharded = layout.sharded or _check_fsdp_request(layout, request, dp * cp)
    asked = Layout(
        dp,
        tp,
        pp,
        ep,
        sharded,
        request.micro_batches,
        request.chunks or 1,
        request.batch or 1.0,
        bool(request.zero_bubble),
        request.context,
        layout.splits_tables,
        request.plan,
        sequence_parallel=bool(request.sequence_parallel),
        zero=_check_zero_request(layout, request, dp * cp),
        cp=cp,
        cp_ring=bool(request.cp_ring),
        gradient_compression=request.gradient_compression,
        sync_every=request.sync_every or 1,
        sync_within=request.sync_within or 1,
        balance=bool(request.balance),
    )
    return _check_exchange(layout, request, asked)


def _check_exchange(layout: Layout, request: LayoutRequest, asked: Layout) -> Layout:
    """Return a requested layout whose replicas can exchange gradients or parameters so; raise an error if they can't.

    A single replica exchanges nothing.
    """
    compression, averages = asked.gradient_compression, asked.sync_every > 1
    if not (compression or averages or asked.sync_within > 1):
        return asked
    if layout.data_ranks > 1:
        raise LayoutError(layouts.RECORDED_EXCHANGE_FIXED())
    if asked.data_ranks == 1 and request.dp is None and request.world_size is None:
        raise LayoutError(layouts.EXCHANGE_OF_ONE_RANK())
    if asked.sync_within > 1 and not averages:
        raise LayoutError(layouts.SYNC_WITHIN_EACH_STEP())
    if compression and averages:
        raise LayoutError(layouts.COMPRESSION_WITH_AVERAGES())
    is_narrow = asked.sharded and asked.pp == 1 and compression in CAST_TYPES
    if compression and ((asked.optimizer_ranks > 1 and not is_narrow) or asked.ep > 1):
        raise LayoutError(layouts.COMPRESSION_OF_ALL_REDUCES(layout=str(asked)))
    if averages and (asked.optimizer_ranks > 1 or asked.world_size > asked.dp or asked.ep > 1):
        raise LayoutError(layouts.AVERAGES_OF_WHOLE_REPLICAS(layout=str(asked)))
    if asked.dp % asked.sync_within:
        raise LayoutError(layouts.SYNC_WITHIN_INDIVISIBLE(within=asked.sync_within, dp=asked.dp))
    alone = replace(asked, gradient_compression=None, sync_every=1, sync_within=1)
    return asked if asked.data_ranks > 1 else alone


def _choose_expert_replicas(layout: Layout, request: LayoutRequest, tp: int) -> int:
    """Choose the number of replicas of a job that is to split its experts, among whose ``tp`` ranks they are split."""
    if layout.world_size > 1:
        raise LayoutError(layouts.RECORDED_RANKS_WITHOUT_EXPERT_PARALLEL())
    if request.fsdp and (request.pp or 1) > 1:
        raise LayoutError(layouts.EXPERTS_WITH_FSDP_STAGES())
    ep = request.ep or 1
    if ep % tp:
        raise LayoutError(layouts.EXPERTS_OVER_MIXED_RANKS(tp=tp, ep=ep))
    if 1 < tp < ep and not request.sequence_parallel:
        raise LayoutError(layouts.EXPERTS_WITHOUT_SEQUENCE_PARALLEL(tp=tp, ep=ep))
    return layout.dp if tp == ep > 1 else max(ep // tp // (request.cp or 1), 1)


def _check_fsdp_request(layout: Layout, request: LayoutRequest, ranks: int) -> bool:
    """Return whether the request turns a job without FSDP into one with FSDP; raise an error if it can't."""
    if not request.fsdp:
        return False
    if layout.dp > 1:
        raise LayoutError(layouts.RECORDED_DDP_FIXED())
    if ranks == 1 and request.dp is None and request.world_size is None:
        raise LayoutError(layouts.FSDP_OF_ONE_RANK())
    return ranks > 1


def _check_zero_request(layout: Layout, request: LayoutRequest, ranks: int) -> int:
    """Return the stage of ZeRO that a request gives a job; raise an error if it can't."""
    if not request.zero:
        return 0
    if layout.dp > 1:
        raise LayoutError(layouts.RECORDED_REPLICAS_FIXED())
    if ranks == 1 and request.dp is None and request.world_size is None:
        raise LayoutError(layouts.ZERO_OF_ONE_RANK())
    return request.zero if ranks > 1 else 0
