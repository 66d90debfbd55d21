"""The columns of every table: type, unit and meaning. Checks, documentation and tooltips are generated from them.

Times in tables are ``_ns`` (int64, absolute for time stamps); times shown to users are ``_us``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
from polars.datatypes import DataTypeClass

from tracekit.arrays import make_nulls

ColumnType = DataTypeClass | pl.DataType


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its name, type and meaning (with the unit, if the name does not give it)."""

    name: str
    dtype: ColumnType
    doc: str


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table, in order."""

    name: str
    doc: str
    columns: tuple[TableColumn, ...]

    @property
    def dtypes(self) -> dict[str, ColumnType]:
        """Polars type of each column."""
        return {column.name: column.dtype for column in self.columns}

    def build_frame(self, data: Mapping[str, object]) -> pl.DataFrame:
        """Build a frame with this table's columns; those missing in ``data`` are null.

        Args:
            data: Values by column name, all of one length.
        """
        known = pl.DataFrame(dict(data), schema_overrides={k: t for k, t in self.dtypes.items() if k in data})
        return self.conform(known)

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Select exactly this table's columns, in order and typed; missing ones are null."""
        if frame.schema == self.dtypes:
            return frame
        given = {column.name: column for column in frame.get_columns()}
        return pl.DataFrame(
            [
                given[name].cast(dtype) if name in given else make_nulls(name, frame.height, dtype)
                for name, dtype in self.dtypes.items()
            ]
        )


_SPAN = (
    TableColumn("ts_ns", pl.Int64, "Start, nanoseconds since the Unix epoch."),
    TableColumn("dur_ns", pl.Int64, "Duration."),
    TableColumn("name", pl.String, "Name as in the trace."),
)
_THREAD = (
    TableColumn("pid", pl.Int64, "Process."),
    TableColumn("tid", pl.Int64, "Operating system thread."),
)
OP_INPUT_COLUMNS = (
    TableColumn("input_dims", pl.String, "Shapes of the op's inputs, JSON."),
    TableColumn("input_types", pl.String, "Types of the op's inputs, JSON."),
    TableColumn("input_strides", pl.String, "Strides of the op's inputs, JSON."),
    TableColumn("concrete_inputs", pl.String, "Values of the op's scalar inputs, JSON."),
)
PROCESS_GROUP_COLUMNS = (
    TableColumn("process_group", pl.String, "Process group's name."),
    TableColumn("group_description", pl.String, "What the job calls the process group, such as mesh_tp."),
    TableColumn("group_ranks", pl.String, "Ranks of the process group, JSON; PyTorch shortens long lists."),
    TableColumn("collective_sequence", pl.Int64, "Number of the collective in its process group."),
    TableColumn("collective_id", pl.String, "Id that the ranks of one collective share."),
    TableColumn("sender", pl.Int64, "Rank that a message comes from, noted where it is received."),
    TableColumn("receiver", pl.Int64, "Rank that a message goes to, noted where it is sent."),
)
COLLECTIVE_COLUMNS = (
    TableColumn("collective", pl.String, "Collective's name as torch.distributed records it."),
    TableColumn("collective_dtype", pl.String, "Element type of the message."),
    TableColumn("in_nelems", pl.Int64, "Elements sent."),
    TableColumn("out_nelems", pl.Int64, "Elements received."),
    TableColumn("group_size", pl.Int64, "Ranks that take part."),
    *PROCESS_GROUP_COLUMNS,
)

OPS = TableSchema(
    "ops",
    "CPU ops: what called into the GPU, with shapes where they were recorded.",
    (
        *_SPAN,
        *_THREAD,
        TableColumn("external_id", pl.Int64, "torch's id of the op."),
        TableColumn("record_function_id", pl.Int64, "Joins the op to an execution trace."),
        TableColumn("sequence", pl.Int64, "Autograd sequence number: equal in forward and backward."),
        *OP_INPUT_COLUMNS,
        *COLLECTIVE_COLUMNS,
        TableColumn(
            "call_stack", pl.String, "Lines of code around the op, innermost first (TorchScript, PyTorch of 2021)."
        ),
        TableColumn("module_hierarchy", pl.String, "Modules that TorchScript ran the op in, outermost first."),
    ),
)

ANNOTATIONS = TableSchema(
    "annotations",
    "Named ranges: record_function, ProfilerStep#N, a serving worker's execute_model.",
    (*_SPAN, *_THREAD),
)

CALLS = TableSchema(
    "calls",
    "Calls of the CUDA or HIP runtime and driver.",
    (
        *_SPAN,
        *_THREAD,
        TableColumn("correlation", pl.Int64, "Joins the call to the GPU work it launched."),
        TableColumn("kernel", pl.String, "Kernel that it launches, where the call tells (ROCm)."),
        TableColumn("blocks", pl.Int64, "Thread blocks that it launches, likewise."),
        TableColumn("threads_per_block", pl.Int64, "Threads in each, likewise."),
    ),
)

ACTIVITIES = TableSchema(
    "activities",
    "What ran on the GPU: kernels, copies and memsets.",
    (
        *_SPAN,
        TableColumn("kind", pl.String, "kernel, memcpy or memset."),
        TableColumn("device", pl.Int64, "GPU ordinal."),
        TableColumn("stream", pl.Int64, "Stream."),
        TableColumn("correlation", pl.Int64, "Joins the activity to the call that launched it."),
        TableColumn("bytes", pl.Int64, "Bytes copied or set."),
        TableColumn("blocks", pl.Int64, "Thread blocks (work-groups) launched."),
        TableColumn("threads_per_block", pl.Int64, "Threads per block."),
        TableColumn("grid", pl.String, "Thread blocks along each axis, JSON; null where these aren't ``blocks``."),
        TableColumn("block", pl.String, "Threads of a block along each axis, JSON."),
        TableColumn("registers_per_thread", pl.Int64, "Registers per thread."),
        TableColumn("shared_memory_bytes", pl.Int64, "Shared memory per block, static and dynamic."),
        TableColumn("graph_node_id", pl.Int64, "Node of the CUDA graph that it was replayed from."),
        TableColumn("module_fqn", pl.String, "Module that launched it into the graph, as PyTorch annotates the node."),
        *COLLECTIVE_COLUMNS,
    ),
)

SYNCS = TableSchema(
    "syncs",
    "Waits as CUPTI records them (cuda_sync events): which stream or call waited for what.",
    (
        *_SPAN,
        TableColumn("stream", pl.Int64, "Stream that waits, or is waited for by the CPU; -1: none."),
        TableColumn("correlation", pl.Int64, "Joins the wait to the call that asked for it."),
        TableColumn("wait_on_stream", pl.Int64, "Stream whose event is waited for."),
        TableColumn("wait_on_record", pl.Int64, "Correlation of the cudaEventRecord that is waited for."),
    ),
)

OVERHEADS = TableSchema(
    "overheads",
    "What CUPTI cost the CPU, and what else it counts as overhead; Kineto writes no thread.",
    (*_SPAN,),
)

THREAD_NAMES = TableSchema(
    "thread_names",
    "Names that the recording gives the threads of the CPU.",
    (*_THREAD, TableColumn("name", pl.String, "Name as in the trace, such as thread 712 (pt_autograd_0).")),
)

FRAMES = TableSchema(
    "frames",
    "Calls of Python functions and modules (with_stack=True), where they were asked for.",
    (*_SPAN, *_THREAD, TableColumn("python_id", pl.Int64, "Number of the call: an outer one's is lower.")),
)

KERNELS = TableSchema(
    "kernels",
    "One row per GPU activity, joined to what launched it, with the work it does.",
    (
        *(
            c
            for c in ACTIVITIES.columns
            if c.name not in ("bytes", "module_fqn", "grid", "block") and c not in COLLECTIVE_COLUMNS
        ),
        TableColumn("call", pl.Int64, "Row in the calls table that launched it; null: launched before the trace."),
        TableColumn("op", pl.String, "Innermost CPU op that owns the launch; of collectives nccl: and the name."),
        TableColumn("op_row", pl.Int64, "That op's row in the ops table."),
        TableColumn("step", pl.Int64, "Step whose code launched it (ProfilerStep number; 0 without steps)."),
        TableColumn(
            "phase", pl.String, "Part of a training step: forward, backward or optimizer; inference is all forward."
        ),
        TableColumn(
            "module",
            pl.String,
            "Path of the innermost nn.Module that launched it, by class, such as Llama.LlamaLayer_3.Linear; of a "
            "backward kernel, the one whose forward it belongs to; of a CUDA graph's kernel, that of its annotation. "
            "Null without stacks or annotations.",
        ),
        TableColumn(
            "python_line",
            pl.String,
            "Likewise the innermost Python function that isn't PyTorch's: file, line where it begins, name.",
        ),
        *OP_INPUT_COLUMNS,
        TableColumn("library", pl.String, "Library that the kernel is from, by its name."),
        TableColumn("family", pl.String, "gemm, attention, conv, norm, ..., other."),
        TableColumn("dtype", pl.String, "Precision that the work is asked for in (fp32, bf16, ...)."),
        TableColumn(
            "weight_dtype", pl.String, "Precision that weights are stored in, where it isn't that (int4, ...)."
        ),
        TableColumn("direction", pl.String, "forward or backward; of a convolution forward, dgrad or wgrad."),
        TableColumn("share", pl.Float64, "Part of its op's work that this kernel does."),
        TableColumn("batch", pl.Int64, "gemm, conv: independent GEMMs (conv: groups); attention: sequences."),
        TableColumn(
            "m", pl.Int64, "gemm, conv: rows of the output; without work one or two sides may be known by the name."
        ),
        TableColumn("n", pl.Int64, "gemm, conv: columns of the output."),
        TableColumn("k", pl.Int64, "gemm, conv: length of the dot products."),
        TableColumn("heads", pl.Int64, "attention: query heads."),
        TableColumn("kv_heads", pl.Int64, "attention: key and value heads."),
        TableColumn("q_len", pl.Int64, "attention: queries per sequence."),
        TableColumn("kv_len", pl.Int64, "attention: keys per sequence."),
        TableColumn("head_dim", pl.Int64, "attention: width of a head."),
        TableColumn("causal", pl.Boolean, "attention: masked causally."),
        TableColumn("window", pl.Int64, "attention: keys that each query sees at most, where that is limited."),
        TableColumn(
            "cache_width",
            pl.Int64,
            "attention: elements that the cache holds per key and key head, where values are part of the keys.",
        ),
        TableColumn("kv_dtype", pl.String, "attention: precision of keys and values, where it is narrower than dtype."),
        TableColumn(
            "mask_bytes",
            pl.Float64,
            "attention: bytes of the bias or mask, and of its gradient, per pair of a query and a key; null: none.",
        ),
        TableColumn("mask_batch", pl.Int64, "attention: sequences for which the mask is stored; 1: all share one."),
        TableColumn("mask_heads", pl.Int64, "attention: heads for which the mask is stored; 1: all share one."),
        TableColumn("paged", pl.Boolean, "attention: keys lie in pages of a serving engine's cache; null: unknown."),
        TableColumn("rows", pl.Int64, "Families bound by memory: independent rows."),
        TableColumn("cols", pl.Int64, "Families bound by memory: elements per row."),
        TableColumn("flops", pl.Int64, "Families bound by memory: operations."),
        TableColumn(
            "bytes",
            pl.Int64,
            "Bytes copied or set; of a collective, the whole buffer; else compulsory traffic.",
        ),
        TableColumn(
            "tile_m", pl.Int64, "gemm, conv: rows that one block computes; attention: queries; by the kernel's name."
        ),
        TableColumn("tile_n", pl.Int64, "gemm, conv: columns that one block computes; attention: keys."),
        TableColumn("tile_k", pl.Int64, "gemm, conv: depth of one pass of a block; attention: width of a head."),
        TableColumn(
            "covered_m",
            pl.Int64,
            "GEMMs whose work isn't known: rows of an output that the tiles of all blocks cover, about as large as the "
            "real one.",
        ),
        TableColumn("covered_n", pl.Int64, "Columns of that output."),
        TableColumn("stages", pl.Int64, "Pipeline stages: passes that a block loads ahead."),
        TableColumn(
            "split_k", pl.Boolean, "Whether blocks share the depth of one output tile; null: the name doesn't tell."
        ),
        TableColumn(
            "indexed",
            pl.Boolean,
            "Families bound by memory: whether it goes element by element, as PyTorch's kernels do over tensors that "
            "are broadcast, strided or cast; null: the name doesn't tell.",
        ),
        TableColumn(
            "across",
            pl.Boolean,
            "Of these: whether some tensors lie along another axis than others, as in a transposition; null: the trace "
            "has no strides.",
        ),
        TableColumn(
            "serial_clocks",
            pl.Int64,
            "Families bound by memory: clocks of the thread that has most to do one after the other, where others have "
            "much less, as in the gradient of the row that is looked up most often; null: threads have about as much.",
        ),
        TableColumn(
            "warp_clocks",
            pl.Float64,
            "Look-ups: clocks of all warps together, where each waits for its loads; updates of rows: 0.",
        ),
        TableColumn(
            "accessed_bytes",
            pl.Float64,
            "Look-ups: bytes that threads load and store, with rows loaded again, of which bytes has only the first "
            "load; null: nothing is loaded again.",
        ),
        TableColumn(
            "reuse_bytes", pl.Float64, "Look-ups: what a cache must hold so that half of the rows loaded again hit it."
        ),
        TableColumn(
            "distinct_bytes",
            pl.Float64,
            "Look-ups: the same so that all of them hit it, which are the different rows of one table; null: of all.",
        ),
        TableColumn(
            "streamed_bytes",
            pl.Float64,
            "Look-ups and updates: bytes of results and lists, side by side in the memory; rows lie anywhere.",
        ),
        TableColumn(
            "host_bytes",
            pl.Float64,
            "Look-ups and updates: bytes over the link to the host's memory, in one direction, where weights or an "
            "optimizer's states lie there; bytes doesn't have them.",
        ),
        TableColumn("winograd", pl.Boolean, "conv: whether its window and stride suit Winograd's algorithm."),
        TableColumn(
            "channels",
            pl.Int64,
            "conv: input channels of one group; gemm: elements side by side in operands, if not k.",
        ),
        TableColumn(
            "channels_first",
            pl.Boolean,
            "conv: whether images lie channel after channel (NCHW); null: the trace has no strides.",
        ),
        TableColumn("height", pl.Int64, "conv, two-dimensional: rows of an output image."),
        TableColumn("width", pl.Int64, "conv, two-dimensional: columns of an output image."),
        TableColumn(
            "part",
            pl.String,
            "norm: sums or scaling where several kernels make one; rows or squares: PyTorch's own layer and RMS norm; "
            "norm, softmax, reduction: fused where a compiler generated it; reduction: tree where it is PyTorch's own.",
        ),
        TableColumn("layout", pl.String, "gemm: nn, nt, tn or tt, of the two operands, as in BLAS."),
        TableColumn(
            "tensor_core",
            pl.Boolean,
            "Whether it runs on tensor cores (AMD: matrix cores); null: the name doesn't tell.",
        ),
        TableColumn("copy_kind", pl.String, "memcpy: HtoD, DtoH, DtoD or PtoP."),
        TableColumn("collective", pl.String, "collective: all_reduce, all_gather, ..."),
        TableColumn(
            "algorithm",
            pl.String,
            "collective: tree, ring, one_shot, two_shot or multimem, by the kernel's name. NCCL's ring kernels run "
            "NVLS, CollNet and PAT too; its names tell no protocol.",
        ),
        TableColumn("ranks", pl.Int64, "collective: ranks that take part."),
        *PROCESS_GROUP_COLUMNS,
        TableColumn(
            "work_from",
            pl.String,
            "Where the work was told: shapes (of the op's inputs, or in the kernel's name), recorded (sizes of copies "
            "and messages), repeat (the same kernel elsewhere in the trace), gradients (of an all-reduce, those "
            "accumulated since the last), model (sizes in the model's config.json), projection (a GEMM beside "
            "attention, by its heads), geometry (the launch of a pointwise kernel, of a grouped GEMM, of an optimizer "
            "over lists); null: not known.",
        ),
        TableColumn(
            "work_low",
            pl.Float64,
            "Where the work is a bracket: the least that the bytes, or a GEMM's batch, may be, over those given.",
        ),
        TableColumn("work_high", pl.Float64, "The most that they may be."),
        TableColumn(
            "tokens",
            pl.Int64,
            "GEMMs and MoE kernels whose work isn't known, and those of experts: tokens of the batch that they ran "
            "for, where shapes, a serving engine's annotation or the grids of kernels beside them tell.",
        ),
        TableColumn("experts", pl.Int64, "GEMMs of experts: how many the router chooses from."),
        TableColumn("top_k", pl.Int64, "GEMMs of experts: how many it chooses for each token."),
        TableColumn("hidden", pl.Int64, "moe, of both matrices of gated experts: width of a token."),
        TableColumn("inter", pl.Int64, "Likewise: width between the matrices."),
        TableColumn("topk", pl.Int64, "Likewise: experts of each token."),
    ),
)

LEDGER = TableSchema(
    "ledger",
    "What became of the events of a trace's file, by category: the counts of those read and left out add up to all.",
    (
        TableColumn("kind", pl.String, "Code of what became of them, as in the list of messages."),
        TableColumn(
            "effect",
            pl.String,
            "read, dropped, changed or guessed; what is changed or guessed is among what is read.",
        ),
        TableColumn("unit", pl.String, "What is counted: events, or bytes, keys and names."),
        TableColumn("category", pl.String, "Category; of events that are read, their table; empty without one."),
        TableColumn("phase", pl.String, "Phase in Chrome's trace format; empty for several."),
        TableColumn("count", pl.Int64, "How many."),
        TableColumn("first_event", pl.Int64, "Number of the first in the file, from 0."),
        TableColumn("first_byte", pl.Int64, "Where that is in the uncompressed file; only known of damage."),
        TableColumn("severity", pl.String, "note, or warning if predictions may suffer."),
    ),
)
