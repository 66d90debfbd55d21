"""Options of a job's layout and schedule on the target, and the request of a sweep over layouts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated

from tracekit.bounds import MAX_COUNT
from tracekit.errors import RequestError
from tracekit.messages import layouts
from tracekit.messages import requests as messages
from tracekit.numbers import NUMBER_PATTERN
from tracekit.request.option import Option, Panel, Request, split_values
from tracekit.request.options.run import RunOptions
from tracekit.request.options.target import ConvergenceOptions, TargetOptions

MAX_CONTEXT = 2**27
"""Most keys of a sequence."""
MIN_BATCH_FACTOR, MAX_BATCH_FACTOR = 1e-3, 1e6

WORLD_SIZE = Option("Ranks of the job on the target.", "World size (GPUs in use)", "N", minimum=1, maximum=MAX_COUNT)
DATA_PARALLEL = Option("Data-parallel ranks on the target.", "Data parallel (DP)", "N", minimum=1, maximum=MAX_COUNT)
TENSOR_PARALLEL = Option(
    "Tensor-parallel ranks on the target; of a one-GPU trace too.",
    "Tensor parallel (TP)",
    "N",
    minimum=1,
    maximum=MAX_COUNT,
)
PIPELINE_PARALLEL = Option(
    "Pipeline-parallel stages on the target.", "Pipeline parallel (PP) stages", "N", minimum=1, maximum=MAX_COUNT
)
CONTEXT_PARALLEL = Option(
    "Context-parallel ranks on the target, which split each sequence and gather keys and values.",
    "Context parallel (CP)",
    "N",
    minimum=1,
    maximum=MAX_COUNT,
)
EXPERT_PARALLEL = Option(
    "Expert-parallel (MoE) ranks on the target.", "Expert parallel (EP)", "N", minimum=1, maximum=MAX_COUNT
)
ALL_SHARDED = 3
"""Stage of ZeRO that shards parameters, too."""
COMPRESSIONS = ("fp16", "bf16", "int8", "powersgd:RANK", "topk:FRACTION")
"""Ways to compress gradients, as they are written."""
MICRO_BATCHES = Option(
    "Micro-batches of a step; default the trace's, times {--pp}. Without {--pp} a captured program accumulates "
    "gradients over them: one reduction over ranks, one optimizer step.",
    "Micro-batches",
    "N",
    minimum=1,
    maximum=MAX_COUNT,
)


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(Request):
    """How a job that gets replicas or stages runs."""

    panel = Panel.LAYOUT

    fsdp: Annotated[
        bool,
        Option(
            "FSDP: shard parameters, gradients and optimizer state of a one-GPU job over its data-parallel ranks.",
            "Fully sharded data parallel (FSDP)",
        ),
    ] = False
    shard_optimizer: Annotated[
        bool,
        Option(
            "Shard the optimizer of a one-GPU job over its data-parallel ranks, as Megatron's distributed optimizer "
            "and {--zero} 1.",
            "Sharded optimizer",
        ),
    ] = False
    zero: Annotated[
        int | None,
        Option(
            "ZeRO: 1 shards the optimizer over data-parallel ranks, 2 the gradients too, 3 all (as {--fsdp}).",
            "ZeRO stage",
            "N",
            minimum=1,
            maximum=3,
        ),
    ] = None
    sequence_parallel: Annotated[
        bool,
        Option(
            "Split the tokens between blocks over tensor-parallel ranks too, as Megatron-LM does.",
            "Sequence parallel (with TP)",
        ),
    ] = False
    cp_ring: Annotated[
        bool,
        Option(
            "Context-parallel ranks pass keys and values around in a ring beside attention, in place of gathering them "
            "before it.",
            "Context parallel ring (with CP)",
        ),
    ] = False
    gradient_compression: Annotated[
        str | None,
        Option(
            "How data-parallel ranks compress gradients, as DDP's hooks do: fp16, bf16, int8, powersgd:RANK or "
            "topk:FRACTION.",
            "Gradients sent as (with DP)",
        ),
    ] = None
    sync_every: Annotated[
        int | None,
        Option(
            "Data-parallel ranks average parameters every N steps, in place of gradients in each (local SGD, DiLoCo).",
            "Average parameters every (with DP)",
            "STEPS",
            minimum=2,
            maximum=MAX_COUNT,
        ),
    ] = None
    sync_within: Annotated[
        int | None,
        Option(
            "With {--sync-every}, so many neighbouring ranks, such as a node's, still reduce gradients in each step.",
            "Ranks that reduce in each step",
            "N",
            minimum=2,
            maximum=MAX_COUNT,
        ),
    ] = None
    balance: Annotated[
        bool,
        Option(
            "On a cluster of several kinds of GPUs: data-parallel ranks share the batch by speed, in whole samples, "
            "stages the layers.",
            "Share the work by speed (several kinds of GPUs)",
        ),
    ] = False
    micro_batches: Annotated[int | None, MICRO_BATCHES] = None
    pp_schedule: Annotated[
        str | None,
        Option(
            "1f1b (default), zero-bubble (ZB-H1), interleaved (2 chunks of layers a stage), or interleaved:N.",
            "Pipeline schedule",
        ),
    ] = None

    @property
    def sharding(self) -> dict[str, bool | int | None]:
        """What is sharded over data-parallel ranks, as a layout's request has it."""
        zero = self.zero or int(self.shard_optimizer)
        return {"fsdp": self.fsdp or zero == ALL_SHARDED or None, "zero": zero if 0 < zero < ALL_SHARDED else None}

    @property
    def exchange(self) -> dict[str, str | int | None]:
        """What data-parallel ranks exchange and when, as a layout's request has it."""
        return {name: getattr(self, name) for name in ("gradient_compression", "sync_every", "sync_within")}

    @property
    def schedule(self) -> tuple[int | None, bool | None]:
        """Chunks of layers on each stage, and whether weight gradients are deferred; None for the default."""
        from tracekit.parallelism.layout import parse_schedule

        return parse_schedule(self.pp_schedule)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        from tracekit.parallelism.compressions import parse_compression

        super().check()
        _ = self.schedule
        if self.gradient_compression is not None and parse_compression(self.gradient_compression) is None:
            raise RequestError(
                layouts.GRADIENT_COMPRESSION_UNKNOWN(compression=self.gradient_compression, known=list(COMPRESSIONS))
            )
        if self.fsdp and self.sharding["zero"]:
            raise RequestError(layouts.ZERO_WITH_FSDP())


LARGEST_BATCH = "max"


def parse_batch_factor(batch: float | str | None) -> float | None:
    """Parse the multiple of the batch; infinite for the largest that fits.

    Raises:
        RequestError: It is none.
    """
    if batch is None:
        return None
    text = batch.strip() if isinstance(batch, str) else f"{batch:.15g}"
    if text == LARGEST_BATCH:
        return inf
    is_number = re.fullmatch(NUMBER_PATTERN, text) is not None
    factor = float(text) if is_number else 0.0
    if not MIN_BATCH_FACTOR <= factor <= MAX_BATCH_FACTOR:
        shown = f"{factor:.15g}" if is_number else text
        raise RequestError(messages.BATCH_FACTOR_MALFORMED(batch=shown, least=MIN_BATCH_FACTOR, most=MAX_BATCH_FACTOR))
    return factor


@dataclass(frozen=True, kw_only=True)
class LayoutOptions(Request):
    """The job's layout on the target."""

    panel = Panel.LAYOUT

    world_size: Annotated[int | None, WORLD_SIZE] = None
    dp: Annotated[int | None, DATA_PARALLEL] = None
    cp: Annotated[int | None, CONTEXT_PARALLEL] = None
    tp: Annotated[int | None, TENSOR_PARALLEL] = None
    pp: Annotated[int | None, PIPELINE_PARALLEL] = None
    ep: Annotated[int | None, EXPERT_PARALLEL] = None
    batch: Annotated[
        float | str | None,
        Option(
            "Each rank's batch on the target, as a multiple of the trace's, such as 2 or 0.5, or max for the most "
            "samples that surely fit.",
            "Batch, times the trace's",
            "FACTOR",
        ),
    ] = None
    context: Annotated[
        int | None,
        Option(
            "Keys that each sequence of a decode batch sees on the target.",
            "Context of a decode batch",
            "TOKENS",
            minimum=1,
            maximum=MAX_CONTEXT,
        ),
    ] = None
    plan: Annotated[
        str | None,
        Option(
            "How a recommender's embedding tables are sharded: the JSON of `tracekit shard -o plan.json` or "
            "torchrec; default the fastest plan.",
            "Sharding plan of embedding tables",
            "FILE",
        ),
    ] = None

    @property
    def batch_factor(self) -> float | None:
        """The multiple of the batch; infinite for the largest that fits."""
        return parse_batch_factor(self.batch)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        _ = self.batch_factor


@dataclass(frozen=True, kw_only=True)
class SweepRequest(RunOptions, ScheduleOptions, ConvergenceOptions, TargetOptions):
    """Predictions of many layouts on some targets."""

    panel = Panel.LAYOUT

    world_size: Annotated[int | Sequence[int], WORLD_SIZE] = ()
    dp: Annotated[int | Sequence[int], DATA_PARALLEL] = ()
    cp: Annotated[int | Sequence[int], CONTEXT_PARALLEL] = ()
    tp: Annotated[int | Sequence[int], TENSOR_PARALLEL] = ()
    pp: Annotated[int | Sequence[int], PIPELINE_PARALLEL] = ()
    ep: Annotated[int | Sequence[int], EXPERT_PARALLEL] = ()
    batch: Annotated[
        float | str | None,
        Option(
            "Each rank's batch, as a multiple of the trace's, or max for the most whole samples that surely fit; of a "
            "config its samples.",
            "Batch, times the trace's",
            "FACTOR",
        ),
    ] = None

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """Numbers of ranks."""
        return split_values(self.world_size)

    @property
    def data_parallel(self) -> tuple[int, ...]:
        """Numbers of data-parallel ranks."""
        return split_values(self.dp)

    @property
    def context_parallel(self) -> tuple[int, ...]:
        """Numbers of context-parallel ranks."""
        return split_values(self.cp)

    @property
    def tensor_parallel(self) -> tuple[int, ...]:
        """Numbers of tensor-parallel ranks."""
        return split_values(self.tp)

    @property
    def pipeline_parallel(self) -> tuple[int, ...]:
        """Numbers of stages."""
        return split_values(self.pp)

    @property
    def expert_parallel(self) -> tuple[int, ...]:
        """Numbers of expert-parallel ranks."""
        return split_values(self.ep)

    @property
    def batch_factor(self) -> float | None:
        """The multiple of the batch; infinite for the largest that fits."""
        return parse_batch_factor(self.batch)

    @property
    def leaves_layout_open(self) -> bool:
        """Whether no layout is asked for."""
        asked = (self.data_parallel, self.context_parallel, self.tensor_parallel, self.pipeline_parallel)
        return not any(
            (*asked, self.expert_parallel, self.world_sizes, *self.sharding.values(), *self.exchange.values())
        )

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        self.require_target()
        super().check()
        _ = self.batch_factor
