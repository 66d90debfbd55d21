"""Every table's columns: type, unit and meaning; checks, documentation and tooltips come from here.

Times inside tables are ``_ns`` (int64, absolute for time stamps); times shown to people are ``_us``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
from polars.datatypes import DataTypeClass

type_ = DataTypeClass | pl.DataType


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, type and meaning (with the unit, where the name doesn't hold it)."""

    name: str
    dtype: type_
    doc: str


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of one table, in order."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    @property
    def dtypes(self) -> dict[str, type_]:
        """Column name to polars type."""
        return {column.name: column.dtype for column in self.columns}

    def frame(self, data: Mapping[str, object]) -> pl.DataFrame:
        """A frame of this table's columns; those missing in ``data`` are all null.

        Args:
            data: Column name to values, all of one length.
        """
        known = pl.DataFrame(dict(data), schema_overrides={k: t for k, t in self.dtypes.items() if k in data})
        return self.conform(known)

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """``frame`` with exactly this table's columns, in order and typed; missing ones are null."""
        return frame.select(
            (pl.col(c.name) if c.name in frame.columns else pl.lit(None)).cast(c.dtype).alias(c.name)
            for c in self.columns
        )


_SPAN = (
    Column("ts_ns", pl.Int64, "Start, nanoseconds since the Unix epoch."),
    Column("dur_ns", pl.Int64, "Duration."),
    Column("name", pl.String, "Name as in the trace."),
)
_THREAD = (
    Column("pid", pl.Int64, "Process."),
    Column("tid", pl.Int64, "Operating system thread."),
)
SIGNATURE = (
    Column("input_dims", pl.String, "Shapes of the op's inputs, JSON."),
    Column("input_types", pl.String, "Types of the op's inputs, JSON."),
    Column("input_strides", pl.String, "Strides of the op's inputs, JSON."),
    Column("concrete_inputs", pl.String, "Values of the op's scalar inputs, JSON."),
)
GROUP = (
    Column("process_group", pl.String, "Process group's name."),
    Column("group_description", pl.String, "What the job calls the process group, such as mesh_tp."),
    Column("group_ranks", pl.String, "Ranks of the process group, JSON; PyTorch shortens long lists."),
    Column("collective_sequence", pl.Int64, "Number of the collective in its process group."),
    Column("collective_id", pl.String, "Id that the ranks of one collective share."),
    Column("sender", pl.Int64, "Rank that a message comes from, noted where it is received."),
    Column("receiver", pl.Int64, "Rank that a message goes to, noted where it is sent."),
)
COLLECTIVE = (
    Column("collective", pl.String, "Collective's name as torch.distributed records it."),
    Column("collective_dtype", pl.String, "Element type of the message."),
    Column("in_nelems", pl.Int64, "Elements sent."),
    Column("out_nelems", pl.Int64, "Elements received."),
    Column("group_size", pl.Int64, "Ranks that take part."),
    *GROUP,
)

OPS = Table(
    "ops",
    "CPU ops: what called into the GPU, with shapes where they were recorded.",
    (
        *_SPAN,
        *_THREAD,
        Column("external_id", pl.Int64, "torch's id of the op."),
        Column("record_function_id", pl.Int64, "Joins the op to an execution trace."),
        Column("sequence", pl.Int64, "Autograd sequence number: equal in forward and backward."),
        *SIGNATURE,
        *COLLECTIVE,
        Column("call_stack", pl.String, "Lines of code around the op, innermost first (TorchScript, PyTorch of 2021)."),
        Column("module_hierarchy", pl.String, "Modules that TorchScript ran the op in, outermost first."),
    ),
)

ANNOTATIONS = Table("annotations", "Named ranges: record_function, ProfilerStep#N.", (*_SPAN, *_THREAD))

CALLS = Table(
    "calls",
    "Calls of the CUDA or HIP runtime and driver.",
    (
        *_SPAN,
        *_THREAD,
        Column("correlation", pl.Int64, "Joins the call to the GPU work it launched."),
        Column("kernel", pl.String, "Kernel that it launches, where the call tells (ROCm)."),
        Column("blocks", pl.Int64, "Thread blocks that it launches, likewise."),
        Column("threads_per_block", pl.Int64, "Threads in each, likewise."),
    ),
)

ACTIVITIES = Table(
    "activities",
    "What ran on the GPU: kernels, copies and memsets.",
    (
        *_SPAN,
        Column("kind", pl.String, "kernel, memcpy or memset."),
        Column("device", pl.Int64, "GPU ordinal."),
        Column("stream", pl.Int64, "Stream."),
        Column("correlation", pl.Int64, "Joins the activity to the call that launched it."),
        Column("bytes", pl.Int64, "Bytes copied or set."),
        Column("blocks", pl.Int64, "Thread blocks (work-groups) launched."),
        Column("threads_per_block", pl.Int64, "Threads per block."),
        Column("registers_per_thread", pl.Int64, "Registers per thread."),
        Column("shared_memory_bytes", pl.Int64, "Shared memory per block, static and dynamic."),
        Column("graph_node_id", pl.Int64, "Node of the CUDA graph that it was replayed from."),
        *COLLECTIVE,
    ),
)

SYNCS = Table(
    "syncs",
    "Waits as CUPTI records them (cuda_sync events): which stream or call waited for what.",
    (
        *_SPAN,
        Column("stream", pl.Int64, "Stream that waits, or is waited for by the CPU; -1: none."),
        Column("correlation", pl.Int64, "Joins the wait to the call that asked for it."),
        Column("wait_on_stream", pl.Int64, "Stream whose event is waited for."),
        Column("wait_on_record", pl.Int64, "Correlation of the cudaEventRecord that is waited for."),
    ),
)

OVERHEADS = Table(
    "overheads",
    "What CUPTI cost the CPU, and what else it counts as overhead; Kineto writes no thread.",
    (*_SPAN,),
)

FRAMES = Table(
    "frames",
    "Calls of Python functions and modules (with_stack=True), where they were asked for.",
    (*_SPAN, *_THREAD, Column("python_id", pl.Int64, "Number of the call: an outer one's is lower.")),
)

KERNELS = Table(
    "kernels",
    "One row per GPU activity, joined to what launched it, with the work it does.",
    (
        *(c for c in ACTIVITIES.columns if c.name != "bytes" and c not in COLLECTIVE),
        Column("call", pl.Int64, "Row in the calls table that launched it; null: launched before the trace."),
        Column("op", pl.String, "Innermost CPU op that owns the launch."),
        Column("op_row", pl.Int64, "That op's row in the ops table."),
        Column("step", pl.Int64, "Step whose code launched it (ProfilerStep number; 0 without steps)."),
        Column(
            "phase", pl.String, "Part of a training step: forward, backward or optimizer; inference is all forward."
        ),
        Column(
            "module",
            pl.String,
            "Path of the innermost nn.Module that launched it, by class, such as Llama.LlamaLayer_3.Linear; of a "
            "backward kernel, the one whose forward it belongs to. Null without stacks.",
        ),
        Column(
            "python_line",
            pl.String,
            "Likewise the innermost Python function that isn't PyTorch's: file, line where it begins, name.",
        ),
        *SIGNATURE,
        Column("family", pl.String, "gemm, attention, conv, norm, ..., other."),
        Column("dtype", pl.String, "Precision that the work is asked for in (fp32, bf16, ...)."),
        Column("direction", pl.String, "forward or backward; of a convolution forward, dgrad or wgrad."),
        Column("share", pl.Float64, "Part of its op's work that this kernel does."),
        Column("batch", pl.Int64, "gemm, conv: independent GEMMs (conv: groups); attention: sequences."),
        Column(
            "m", pl.Int64, "gemm, conv: rows of the output; without work one or two sides may be known by the name."
        ),
        Column("n", pl.Int64, "gemm, conv: columns of the output."),
        Column("k", pl.Int64, "gemm, conv: length of the dot products."),
        Column("heads", pl.Int64, "attention: query heads."),
        Column("kv_heads", pl.Int64, "attention: key and value heads."),
        Column("q_len", pl.Int64, "attention: queries per sequence."),
        Column("kv_len", pl.Int64, "attention: keys per sequence."),
        Column("head_dim", pl.Int64, "attention: width of a head."),
        Column("causal", pl.Boolean, "attention: masked causally."),
        Column("window", pl.Int64, "attention: keys that each query sees at most, where that is limited."),
        Column("paged", pl.Boolean, "attention: keys lie in pages of a serving engine's cache; null: unknown."),
        Column("rows", pl.Int64, "Families bound by memory: independent rows."),
        Column("cols", pl.Int64, "Families bound by memory: elements per row."),
        Column("flops", pl.Int64, "Families bound by memory: operations."),
        Column(
            "bytes",
            pl.Int64,
            "Bytes copied or set; of a collective, the whole buffer; else compulsory traffic.",
        ),
        Column(
            "tile_m", pl.Int64, "gemm, conv: rows that one block computes; attention: queries; by the kernel's name."
        ),
        Column("tile_n", pl.Int64, "gemm, conv: columns that one block computes; attention: keys."),
        Column("tile_k", pl.Int64, "gemm, conv: depth of one pass of a block; attention: width of a head."),
        Column("stages", pl.Int64, "Pipeline stages: passes that a block loads ahead."),
        Column(
            "split_k", pl.Boolean, "Whether blocks share the depth of one output tile; null: the name doesn't tell."
        ),
        Column(
            "indexed",
            pl.Boolean,
            "Families bound by memory: whether it goes element by element, as PyTorch's kernels do over tensors that "
            "are broadcast, strided or cast; null: the name doesn't tell.",
        ),
        Column(
            "across",
            pl.Boolean,
            "Of these: whether some tensors lie along another axis than others, as in a transposition; null: the trace "
            "has no strides.",
        ),
        Column("winograd", pl.Boolean, "conv: whether its window and stride suit Winograd's algorithm."),
        Column("channels", pl.Int64, "conv: input channels of one group."),
        Column("height", pl.Int64, "conv, two-dimensional: rows of an output image."),
        Column("width", pl.Int64, "conv, two-dimensional: columns of an output image."),
        Column(
            "part",
            pl.String,
            "norm: sums or scaling where several kernels make one; rows or squares: PyTorch's own layer and RMS norm; "
            "norm, softmax, reduction: fused where a compiler generated it; reduction: tree where it is PyTorch's own.",
        ),
        Column("layout", pl.String, "gemm: nn, nt, tn or tt, of the two operands, as in BLAS."),
        Column(
            "tensor_core",
            pl.Boolean,
            "Whether it runs on tensor cores (AMD: matrix cores); null: the name doesn't tell.",
        ),
        Column("copy_kind", pl.String, "memcpy: HtoD, DtoH, DtoD or PtoP."),
        Column("collective", pl.String, "collective: all_reduce, all_gather, ..."),
        Column(
            "algorithm",
            pl.String,
            "collective: tree, ring, one_shot, two_shot or multimem, by the kernel's name. NCCL's ring kernels run "
            "NVLS, CollNet and PAT too; its names tell no protocol.",
        ),
        Column("ranks", pl.Int64, "collective: ranks that take part."),
        *GROUP,
        Column(
            "work_from",
            pl.String,
            "Where the work was told: shapes (of the op's inputs, or in the kernel's name), recorded (sizes of copies "
            "and messages), repeat (the same kernel elsewhere in the trace), gradients (of an all-reduce, those "
            "accumulated since the last), projection (a GEMM beside attention, by its heads), geometry "
            "(the launch of a pointwise kernel, of a grouped GEMM, of an optimizer over lists); null: not known.",
        ),
        Column(
            "work_low",
            pl.Float64,
            "Where the work is a bracket: the least that the bytes, or a GEMM's batch, may be, over those given.",
        ),
        Column("work_high", pl.Float64, "The most that they may be."),
        Column(
            "tokens",
            pl.Int64,
            "GEMMs and MoE kernels whose work isn't known: tokens of the batch that they ran for, where a serving "
            "engine's annotation or the grids of kernels beside them tell.",
        ),
    ),
)
