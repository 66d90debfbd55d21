"""The kernels that a serving engine launches in a step, told once: as ops whose shapes hold the step's sizes as names.

The matrices are those of :mod:`tracekit.workload.work_inference.model_roles`, fused as vLLM, SGLang and TensorRT-LLM
fuse them: query, key and value in one, gate and input of an MLP in one. Between them stand the engines' own kernels::

    add-norm, [quantise] qkv, rope, store in the cache, attention, [quantise] output, [all-reduce]
    add-norm, [quantise] gate and up, SiLU and product, [quantise] down, [all-reduce]          of each layer
    add-norm, rows that are sampled, logits, softmax, choice                                   at the end

What of it an engine fuses is in :data:`ENGINES`. With latent attention, sequences that decode work on the compressed
cache, prompts on keys and values of each head; a step of both has both. Where an indexer selects the keys, both work
on the cache, each token on those selected for it. Linear attention has a short convolution and a
delta rule or Mamba-2 between its matrices.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tracekit.capturing.calls import Call
from tracekit.messages import layouts
from tracekit.messages import serving as messages
from tracekit.models.llm import Indexer, LatentAttention, LinearAttention, ModelConfig, TransformerLayer
from tracekit.parallelism.layout import LayoutError
from tracekit.served.model import (
    ACTIVATION_BYTES,
    BACKENDS,
    CACHE_AS,
    CACHE_BYTES,
    DENSE,
    EXPERTS,
    LOW_LATENCY,
    NORMAL,
    QUANTISED,
    SHARED,
    STORED,
    ServedModel,
    ServingEngine,
)
from tracekit.served.model import ATTENTION as ATTENTION_PART
from tracekit.workload.work_inference import model_roles as roles

HALF, SINGLE, NARROW, INTEGER = "c10::BFloat16", "float", "c10::Float8_e4m3fn", "long int"
UNQUANTISED = (roles.LOGITS, roles.ROUTER, roles.SHARED_GATE, roles.ABSORB, roles.EXPAND, roles.INDEX_WEIGHTS)
"""Matrices that quantised checkpoints leave in 16 bits."""
PART_OF_ROLE: Mapping[str, str] = {
    **dict.fromkeys((roles.MLP_IN, roles.MLP_OUT), DENSE),
    **dict.fromkeys((roles.SHARED_IN, roles.SHARED_OUT), SHARED),
    **dict.fromkeys(roles.OF_EXPERTS, EXPERTS),
}
"""Parts of a layer by its matrices; all others are attention's."""
ACTIVATED = (roles.MLP_OUT, roles.SHARED_OUT, roles.EXPERTS_OUT)
ATTENTION, MLP, HEAD = "Attention", "Mlp", "Head"
FUSION = roles.Fusion(qkv=True, gate=True, router=True, logits=True, absorbed=True, shared_gate=True)
TENSOR_GROUP, EXPERT_GROUP, STAGE_GROUP = "tp", "ep", "pp"
ALL_GATHER = ("c10d::_allgather_base_", "ncclDevKernel_AllGather_RING_LL")
EXCHANGE_LIBRARY: Mapping[str, str] = {"vllm": "vllm", "sglang": "deepep", "trtllm": "trtllm"}
"""Whose exchanges were measured: vLLM's and TensorRT-LLM's from call to return, of SGLang's DeepEP's kernels alone."""
EXCHANGE_KERNELS: Mapping[str, str] = {NORMAL: "deep_ep::intranode", LOW_LATENCY: "deep_ep::internode_ll"}
DISPATCH, COMBINE = "dispatch", "combine"
DELTA_STEP = "fused_recurrent_gated_delta_rule_fwd_kernel"
DELTA_CHUNKS = "chunk_gated_delta_rule_fwd_kernel_h_blockdim64"
"""Stands for all kernels of a layer's chunks."""
STATE_SPACE_CHUNKS = (
    "_chunk_cumsum_fwd_kernel", "_chunk_state_fwd_kernel", "_state_passing_fwd_kernel", "_bmm_chunk_fwd_kernel",
    "_chunk_scan_fwd_kernel",
)  # fmt: skip
"""Kernels of Mamba-2 over a prompt, as mamba_ssm and engines have them."""
REDUCE_SCATTER = ("c10d::_reduce_scatter_base_", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL")


@dataclass(frozen=True, slots=True)
class StepSizes:
    """What a step works on.

    Attributes:
        new: Tokens of prompts.
        prompts: Prompts that these belong to, each alike; 0 without any.
        sequences: Sequences that decode, one token each.
        context: Tokens in the cache of each of them, besides.
    """

    new: int
    prompts: int
    sequences: int
    context: int

    @property
    def tokens(self) -> int:
        """Rows of the activations."""
        return max(self.new + self.sequences, 1)

    @property
    def sampled(self) -> int:
        """Rows of the logits."""
        return max(self.prompts + self.sequences, 1)

    @property
    def decoding(self) -> int:
        """Sequences of a step that only decodes."""
        return 0 if self.new else self.sequences

    @property
    def each(self) -> int:
        """Tokens of a prompt."""
        return max(round(self.new / self.prompts), 1) if self.prompts else 0

    @property
    def keys(self) -> int:
        """Keys that a sequence sees that decodes."""
        return self.context + 1


@dataclass(frozen=True, slots=True)
class Size:
    """A size of a shape that the step tells.

    Attributes:
        of: Name of an attribute of :class:`StepSizes`.
        times: Its factor.
        over: Its divisor.
        chunk: Keys after whose multiples attention begins anew; 0 where it doesn't.
    """

    of: str
    times: int = 1
    over: int = 1
    chunk: int = 0

    def count(self, step: StepSizes) -> int:
        """Return the size in a step."""
        told: int = getattr(step, self.of)
        if self.chunk and told > self.chunk:
            told = max(self.chunk // 2, 1)
        return -(-told * self.times // self.over)


TOKENS, NEW, SEQUENCES, SAMPLED = Size("tokens"), Size("new"), Size("sequences"), Size("sampled")
Shape = tuple["int | Size", ...]


@dataclass(frozen=True, slots=True)
class EngineKernel:
    """A kernel of a step.

    Attributes:
        op: The op that launches it.
        shapes: Shapes of its tensors.
        types: Their types.
        kernel: Its name.
        values: Its last arguments, which aren't tensors.
        needs: Size of the step without which it isn't launched.
        group: Description of a collective's ranks; empty of all other kernels.
        group_ranks: Number of these.
        group_stride: Distance of one to the next.
    """

    op: str
    shapes: tuple[Shape, ...]
    types: tuple[str, ...]
    kernel: str
    values: tuple[str, ...] = ()
    needs: str = "tokens"
    group: str = ""
    group_ranks: int = 0
    group_stride: int = 1

    def call(self, step: StepSizes) -> Call | None:
        """Return its call in a step; None where the step has nothing for it."""
        if not getattr(step, self.needs):
            return None
        dims: list[Any] = [[_count(size, step) for size in shape] for shape in self.shapes]
        types = [*self.types, *["Scalar"] * (len(dims) + len(self.values) - len(self.types))]
        noted: dict[str, Any] = {}
        if self.group:
            noted = {"Group size": self.group_ranks, "Process Group Description": self.group}
        if self.group_stride > 1:
            members = range(0, self.group_ranks * self.group_stride, self.group_stride)
            noted["Process Group Ranks"] = json.dumps([*members], separators=(",", ":"))
        return Call(
            self.op,
            [*dims, *[[] for _ in self.values]],
            types,
            [*[""] * len(dims), *self.values],
            (self.kernel,),
            kernel_args=noted,
        )


def _count(size: int | Size, step: StepSizes) -> int:
    return size.count(step) if isinstance(size, Size) else size


Place = tuple[str, int]
"""A module and its layer."""
Named = tuple[str, str]
"""An op and its kernel."""


@dataclass(frozen=True, slots=True)
class EngineOps:
    """What an engine launches between the matrices, and what of it is one kernel.

    Attributes:
        norm: Adds the residual and normalises.
        normalise: Normalises alone.
        rotate: Turns queries and keys.
        store: Writes keys and values into the cache.
        activate: Activation and product of a gated MLP.
        quantise: Casts the input of a matrix.
        route: Chooses the experts of a token.
        attend: Name of attention's kernel.
        stores_rotated: Whether the kernel that turns keys writes them into the cache.
        norms_reduced: Whether the all-reduce of several ranks adds the residual and normalises.
        casts_in_norm: Formats of weights whose input the norm before them casts.
        casts_in_activation: The same of the activation.
    """

    norm: Named
    normalise: Named
    rotate: Named
    store: Named
    activate: Named
    quantise: Named
    route: Named
    attend: str
    stores_rotated: bool = False
    norms_reduced: bool = False
    casts_in_norm: tuple[str, ...] = ()
    casts_in_activation: tuple[str, ...] = ()


ENGINES: Mapping[str, EngineOps] = {
    "vllm": EngineOps(
        norm=("_C::fused_add_rms_norm", "fused_add_rms_norm_kernel"),
        normalise=("_C::rms_norm", "rms_norm_kernel"),
        rotate=("_C::rotary_embedding", "rotary_embedding_kernel"),
        store=("_C_cache_ops::reshape_and_cache_flash", "reshape_and_cache_flash_kernel"),
        activate=("_C::silu_and_mul", "act_and_mul_kernel"),
        quantise=("_C::dynamic_scaled_fp8_quant", "scaled_fp8_quant"),
        route=("_moe_C::topk_softmax", "topkGating_softmax"),
        attend="paged_attention_kernel",
    ),
    "sglang": EngineOps(
        norm=("sgl_kernel::fused_add_rmsnorm", "FusedAddRMSNormKernel"),
        normalise=("sgl_kernel::rmsnorm", "RMSNormKernel"),
        rotate=("sgl_kernel::rotary_embedding", "rotary_embedding_kernel"),
        store=("sglang::store_cache", "store_kvcache"),
        activate=("sgl_kernel::silu_and_mul", "act_and_mul_kernel"),
        quantise=("sgl_kernel::sgl_per_token_quant_fp8", "per_token_quant_fp8_kernel"),
        route=("sgl_kernel::topk_softmax", "topkGatingSoftmax"),
        attend="paged_attention_kernel",
    ),
    "trtllm": EngineOps(
        norm=("_C::fused_add_rms_norm", "FusedAddRMSNormKernel"),
        normalise=("_C::rms_norm", "RMSNormKernel"),
        rotate=("_C::rotary_embedding", "applyBiasRopeUpdateKVCacheV2"),
        store=("", ""),
        activate=("_C::silu_and_mul", "act_and_mul_kernel"),
        quantise=("_C::dynamic_scaled_fp8_quant", "scaled_fp8_quant"),
        route=("_moe_C::topk_softmax", "topkGating_softmax"),
        attend="masked_multihead_attention_kernel",
        stores_rotated=True,
        norms_reduced=True,
    ),
}
"""vLLM: ``vllm/model_executor/layers`` and ``csrc``. SGLang: ``sgl-kernel`` and ``python/sglang/srt/layers``; a decode
step and a prefill of SGLang in tracekit's corpus of traces have these kinds, and norms of queries and keys apart.
TensorRT-LLM: ``cpp/tensorrt_llm/kernels`` (``unfusedAttentionKernels``: rope and the cache in one kernel;
``communicationKernels``: all-reduce, residual and norm in one, ``AllReduceFusionOp``), under vLLM's names of ops."""


def list_engine_kernels(model: ServedModel, engine: ServingEngine) -> Iterator[tuple[Place, EngineKernel]]:
    """List the kernels of a step of an engine on one of its GPUs, in order, each with its module and layer.

    Raises:
        LayoutError: Heads or experts can't be split evenly.
    """
    _check_split(model.config, engine)
    return _KernelList(model, engine).list_all()


def _check_split(config: ModelConfig, engine: ServingEngine) -> None:
    ranks, expert_ranks = engine.ranks, engine.expert_ranks
    if engine.backend in BACKENDS and engine.replicas == 1:
        raise LayoutError(messages.SERVING_BACKEND_ALONE(backend=engine.backend))
    if engine.stages > len(config.layers):
        raise LayoutError(messages.SERVING_STAGES(stages=engine.stages, layers=len(config.layers)))
    for heads in {layer.heads for layer in config.layers}:
        if heads % ranks:
            raise LayoutError(layouts.HEADS_INDIVISIBLE(op="attention", heads=heads, ranks=ranks))
    if expert_ranks == 1:
        return
    counts = {layer.experts for layer in config.layers} - {0}
    if not counts:
        raise LayoutError(messages.SERVING_EXPERTS(path=config.name))
    for experts in counts:
        if experts % expert_ranks:
            raise LayoutError(layouts.EXPERTS_INDIVISIBLE(experts=experts, ranks=expert_ranks))
    if expert_ranks % ranks:
        raise LayoutError(messages.SERVING_EXPERT_RANKS(ranks=ranks, expert_ranks=expert_ranks))


class _KernelList:
    def __init__(self, model: ServedModel, engine: ServingEngine) -> None:
        self._model, self._config, self._engine, self._ranks = model, model.config, engine, engine.ranks
        self._ops = ENGINES[engine.framework]
        self._gathered = Size("tokens", engine.replicas)
        self._modes = _list_modes(engine)

    def list_all(self) -> Iterator[tuple[Place, EngineKernel]]:
        config = self._config
        rows = roles.split(config.vocabulary, self._ranks)
        looked_up: tuple[Shape, ...] = ((rows, config.hidden), (TOKENS,))
        yield (HEAD, 0), EngineKernel("aten::embedding", looked_up, (HALF, INTEGER), "embedding_kernel")
        yield from (((HEAD, 0), one) for one in self._reduce())
        reached, normed = -1, ("", -1)
        begins = self._list_stages()
        listed = roles.list_roles(config, FUSION, self._ranks)
        for segment, role, n, k, layer in listed.select(
            "segment", "role", "n_of_model", "k_of_model", "layer"
        ).iter_rows():
            if segment > max(reached, 0):
                for before in range(max(reached, 0), segment):
                    yield from (((ATTENTION, before), one) for one in self._mix(config.layers[before]))
            reached = segment
            place = (_name_module(role), layer)
            if layer in begins:
                begins.remove(layer)
                yield place, self._send()
            follows_norm = place != normed and role not in (roles.OUTPUT, roles.EXPAND)
            if follows_norm and not (self._ops.norms_reduced and self._ranks > 1 and segment > 0):
                yield place, self._add_norm()
            normed = place
            yield from ((place, one) for one in self._multiply(config.layers[layer], role, n, k, follows_norm))

    def _list_stages(self) -> set[int]:
        """List the layers that stages but the first begin with."""
        layers, stages = len(self._config.layers), self._engine.stages
        return {stage * layers // stages for stage in range(1, stages)}

    def _send(self) -> EngineKernel:
        """Send the activations and the residual to the next stage, whose rank of the same place takes them."""
        return EngineKernel(
            "c10d::send", ((TOKENS, 2 * self._config.hidden),), (HALF,), "ncclDevKernel_SendRecv",
            group=STAGE_GROUP, group_ranks=self._engine.stages,
            group_stride=self._ranks * self._engine.replicas,
        )  # fmt: skip

    def _add_norm(self) -> EngineKernel:
        op, kernel = self._ops.norm
        shape: Shape = (TOKENS, self._config.hidden)
        return EngineKernel(op, (shape, shape, (self._config.hidden,)), (HALF,) * 3, kernel)

    def _reduce(self) -> Iterator[EngineKernel]:
        """Yield the all-reduce of the ranks' activations, by the engine's own kernel."""
        if self._ranks > 1:
            shape: Shape = (TOKENS, self._config.hidden)
            yield EngineKernel(
                "_C_custom_ar::all_reduce",
                ((), shape),
                ("Scalar", HALF),
                "cross_device_reduce",
                group=TENSOR_GROUP,
                group_ranks=self._ranks,
            )

    def _multiply(
        self, layer: TransformerLayer, role: str, n: int, k: int, follows_norm: bool
    ) -> Iterator[EngineKernel]:
        """Yield a matrix product, and what the engine launches before and after it."""
        rows = self._count_pairs(layer) if role == roles.EXPERTS_OUT else _count_rows(role, layer)
        if role in roles.OF_EXPERTS and self._engine.expert_ranks > 1:
            n, k = _find_whole_expert(layer, role, self._config.hidden)
        if role == roles.EXPERTS_IN:
            yield from self._dispatch(layer)
        if role in roles.OF_EXPERTS and self._are_packed():
            if role == roles.EXPERTS_OUT:
                yield self._run_packed_experts(layer, n, k)
                yield from self._follow_product(layer, role, n)
            return
        if role == roles.LOGITS:
            yield EngineKernel(
                "aten::index_select",
                ((TOKENS, k), (), (SAMPLED,)),
                (HALF, "Scalar", INTEGER),
                "gather",
                needs="prompts",
            )
        if role in ACTIVATED:
            yield self._activate(layer, rows, k)
        precision = self._find_precision(role)
        is_cast = follows_norm and precision in self._ops.casts_in_norm
        is_cast |= role in ACTIVATED and precision in self._ops.casts_in_activation
        if precision in QUANTISED and not is_cast:
            op, kernel = self._ops.quantise
            yield EngineKernel(op, ((rows, k), (rows, k), (1,)), (NARROW, HALF, SINGLE), kernel, needs=rows.of)
        yield self._build_product(layer, role, (n, k), precision)
        if role == roles.ABSORB and layer.latent and not layer.indexer:
            heads, of_head = roles.split(layer.heads, self._ranks), layer.latent.plain + layer.latent.value
            size = heads * of_head, layer.latent.kv_rank
            expanded = roles.KEYS_AND_VALUES
            yield self._build_product(layer, expanded, size, self._find_precision(expanded))
        yield from self._follow_product(layer, role, n)

    def _run_packed_experts(self, layer: TransformerLayer, hidden: int, inter: int) -> EngineKernel:
        """Run all matrices of experts whose weights are packed, by one kernel or several; the law's have three."""
        rows, experts, top_k = self._spread(layer)
        inter = inter if layer.is_gated else 2 * inter // 3
        return EngineKernel(
            "tracekit::packed_experts", ((rows, hidden), (experts, inter, hidden)), (HALF, HALF), "fused_moe",
            (str(top_k), json.dumps(self._model.precision)),
        )  # fmt: skip

    def _are_packed(self) -> bool:
        return self._find_precision(roles.EXPERTS_IN) in STORED

    def _spread(self, layer: TransformerLayer) -> tuple[Size, int, int]:
        """Return the rows that a rank's experts get, its experts and those of each row."""
        shares = self._engine.expert_ranks
        if shares > 1:
            return self._count_pairs(layer), layer.experts // shares, 1
        return TOKENS, layer.experts, layer.top_k

    def _find_precision(self, role: str) -> str:
        """Find the format of a matrix."""
        is_plain = role in UNQUANTISED or PART_OF_ROLE.get(role, ATTENTION_PART) in self._model.plain
        return "bf16" if is_plain else self._model.precision

    def _activate(self, layer: TransformerLayer, rows: Size, k: int) -> EngineKernel:
        if not layer.is_gated:
            return EngineKernel("aten::gelu", ((rows, k),), (HALF,), "gelu_kernel")
        op, kernel = self._ops.activate
        return EngineKernel(op, ((rows, k), (rows, 2 * k)), (HALF, HALF), kernel)

    def _build_product(self, layer: TransformerLayer, role: str, size: tuple[int, int], precision: str) -> EngineKernel:
        n, k = size
        rows = _count_rows(role, layer)
        types = (NARROW if precision in QUANTISED else HALF,) * 2
        told = json.dumps(precision)
        if role in roles.OF_EXPERTS:
            rows, experts, top_k = self._spread(layer)
            weights: Shape = (experts, k, n)
            return EngineKernel("tracekit::expert_gemm", ((rows, k), weights), types, "gemm", (str(top_k), told))
        if role in roles.PER_HEAD:
            heads = roles.split(layer.heads, self._ranks)
            return EngineKernel("aten::bmm", ((heads, rows, k), (heads, k, n)), types, "gemm", needs=rows.of)
        if precision in (*QUANTISED, *STORED):
            return EngineKernel(
                "tracekit::quantised_linear", ((rows, k), (k, n)), types, "gemm", (told,), needs=rows.of
            )
        return EngineKernel("aten::mm", ((rows, k), (k, n)), types, "gemm", needs=rows.of)

    def _follow_product(self, layer: TransformerLayer, role: str, n: int) -> Iterator[EngineKernel]:
        if role == roles.ROUTER:
            op, kernel = self._ops.route
            chosen: Shape = (TOKENS, layer.top_k)
            types = (SINGLE, INTEGER, INTEGER, HALF)
            yield EngineKernel(op, (chosen, chosen, chosen, (TOKENS, n)), types, kernel)
        elif role == roles.EXPERTS_OUT:
            yield from self._combine(layer, n)
        elif role == roles.LOGITS:
            logits: Shape = (SAMPLED, self._config.vocabulary)
            yield from self._gather(logits, (SAMPLED, n))
            yield EngineKernel("aten::_softmax", (logits, (), ()), (SINGLE,), "softmax_kernel")
            yield EngineKernel("aten::argmax", (logits, ()), (SINGLE,), "reduce_kernel")
        if role == roles.EXPERTS_OUT and self._modes:
            yield from self._gather((TOKENS, n), (Size("tokens", over=self._ranks), n))
        elif role in (roles.OUTPUT, roles.MLP_OUT, roles.EXPERTS_OUT):
            yield from self._reduce()

    def _count_pairs(self, layer: TransformerLayer) -> Size:
        """Count pairs of a token and one of its experts on a rank, each expert as often as any other."""
        engine = self._engine
        return Size("tokens", layer.top_k * engine.replicas, max(engine.expert_ranks, 1))

    def _dispatch(self, layer: TransformerLayer) -> Iterator[EngineKernel]:
        """Yield what brings tokens to the ranks of their experts."""
        if not self._modes:
            yield from self._exchange(ALL_GATHER, (self._gathered, TOKENS))
        for mode, needs in self._modes:
            yield self._send_tokens(layer, mode, DISPATCH, needs)

    def _combine(self, layer: TransformerLayer, n: int) -> Iterator[EngineKernel]:
        """Yield what sums up a token's experts, on each rank and over the ranks.

        Low-latency combines do both; the law of packed experts has the sum of a rank that gets whole tokens.
        """
        pairs = self._count_pairs(layer), n
        for mode, needs in self._modes or ((NORMAL, "tokens"),):
            is_summed = self._are_packed() and self._engine.expert_ranks == 1
            if mode == NORMAL and not is_summed:
                rows = self._count_sent(layer, mode) if self._modes else self._gathered
                yield EngineKernel("_moe_C::moe_sum", (pairs, (rows, n)), (HALF, HALF), "moe_sum_kernel", needs=needs)
        if not self._modes:
            yield from self._exchange(REDUCE_SCATTER, (TOKENS, self._gathered))
        for mode, needs in self._modes:
            yield self._send_tokens(layer, mode, COMBINE, needs)

    def _send_tokens(self, layer: TransformerLayer, mode: str, phase: str, needs: str) -> EngineKernel:
        """Send a rank's part of the tokens to their experts or back, by DeepEP."""
        is_narrow = phase == DISPATCH and (mode == LOW_LATENCY or self._model.precision in ("fp8", "fp8_block"))
        return EngineKernel(
            f"tracekit::all_to_all_of_{EXCHANGE_LIBRARY[self._engine.framework]}",
            ((self._count_sent(layer, mode), self._config.hidden),), (NARROW if is_narrow else HALF,),
            f"{EXCHANGE_KERNELS[mode]}::{phase}",
            needs=needs, group=EXPERT_GROUP, group_ranks=self._engine.expert_ranks,
        )  # fmt: skip

    def _count_sent(self, layer: TransformerLayer, mode: str) -> Size:
        """Count the rows that a rank sends, its own among them, with each expert as often as any other."""
        ranks = self._engine.expert_ranks
        copies = layer.top_k if mode == LOW_LATENCY else ranks * (1 - (1 - 1 / ranks) ** layer.top_k)
        return Size("tokens", round(1000 * copies), 1000 * self._ranks)

    def _exchange(self, kind: Named, rows: tuple[Size, Size]) -> Iterator[EngineKernel]:
        """Yield a collective between groups of ranks with requests of their own: output and input of such rows."""
        if self._engine.replicas > 1:
            out, own = ((one, self._config.hidden) for one in rows)
            op, kernel = kind
            ranks = self._engine.replicas
            yield EngineKernel(
                op, (out, own), (HALF, HALF), kernel,
                group=EXPERT_GROUP, group_ranks=ranks, group_stride=self._ranks,
            )  # fmt: skip

    def _gather(self, whole: Shape, own: Shape) -> Iterator[EngineKernel]:
        """Yield the all-gather of the ranks' parts of a tensor, by NCCL."""
        if self._ranks > 1:
            yield EngineKernel(
                ALL_GATHER[0], (whole, own), (HALF, HALF), ALL_GATHER[1],
                group=TENSOR_GROUP, group_ranks=self._ranks,
            )  # fmt: skip

    def _normalise(self, layer: TransformerLayer, heads: int, kv_heads: int) -> Iterator[EngineKernel]:
        """Yield the norms of each head of queries and keys, or of what latent attention compresses."""
        latent = layer.latent
        normed = [(TOKENS, latent.query_rank), (TOKENS, latent.kv_rank)] if latent else []
        if layer.is_query_normed and not latent:
            normed = [(Size("tokens", one), layer.head_dim) for one in (heads, kv_heads)]
        op, kernel = self._ops.normalise
        for rows, width in normed:
            if width:
                yield EngineKernel(op, ((rows, width), (rows, width), (width,)), (HALF,) * 3, kernel)

    def _mix(self, layer: TransformerLayer) -> Iterator[EngineKernel]:
        return self._recur(layer.linear) if layer.linear else self._attend(layer)

    def _recur(self, linear: LinearAttention) -> Iterator[EngineKernel]:
        """Yield what is between linear attention's matrices: prompts in chunks, sequences that decode by a step."""
        heads, key_heads = (roles.split(one, self._ranks) for one in (linear.heads, linear.key_heads))
        channels = 2 * key_heads * linear.key_width + heads * linear.value_width
        for batch, tokens in ((SEQUENCES, 1), (Size("prompts"), Size("each"))):
            steps = batch is SEQUENCES
            convolved: tuple[Shape, ...] = ((batch, tokens, channels), (channels, linear.taps))
            convolution = "causal_conv1d_update_kernel" if steps else "causal_conv1d_fwd_kernel"
            yield EngineKernel("tracekit::short_convolution", convolved, (HALF, HALF), convolution, needs=batch.of)
            factors, values = (batch, tokens, key_heads, linear.key_width), (batch, tokens, heads, linear.value_width)
            if linear.is_delta_rule or steps:
                kernel = DELTA_STEP if steps else DELTA_CHUNKS
                yield EngineKernel("tracekit::delta_rule", (factors, values), (HALF, HALF), kernel, needs=batch.of)
                continue
            scanned = (values, (batch, tokens, heads), (heads,), factors, factors)
            for kernel in STATE_SPACE_CHUNKS:
                yield EngineKernel(
                    "MambaChunkScanCombinedFn", scanned, (HALF, HALF, SINGLE, HALF, HALF), kernel,
                    (str(linear.chunk),), needs=batch.of,
                )  # fmt: skip
        op, kernel = self._ops.normalise
        groups = heads if linear.is_delta_rule else key_heads
        width = heads * linear.value_width // groups
        normed: Shape = (Size("tokens", groups), width)
        yield EngineKernel(op, (normed, normed, (width,)), (HALF,) * 3, kernel)

    def _attend(self, layer: TransformerLayer) -> Iterator[EngineKernel]:
        """Yield what is between the matrices before attention and those behind it."""
        latent = layer.latent
        heads, kv_heads = (roles.split(one, self._ranks) for one in (layer.heads, layer.kv_heads))
        form = self._model.cache_type
        cache = HALF if CACHE_BYTES[form] == ACTIVATION_BYTES else NARROW
        told = () if cache == HALF else (json.dumps(CACHE_AS[form]),)
        yield from self._normalise(layer, heads, kv_heads)
        turned, new_keys = (latent.rotated, 1) if latent else (layer.head_dim, kv_heads)
        op, kernel = self._ops.rotate
        table: tuple[Shape, ...] = (
            (TOKENS,),
            (TOKENS, heads * turned),
            (TOKENS, new_keys * turned),
            (),
            (TOKENS, turned),
        )
        yield EngineKernel(op, table, (INTEGER, HALF, HALF, "Scalar", HALF), kernel)
        if not self._ops.stores_rotated:
            stored: Shape = (TOKENS, 1, latent.cached) if latent else (TOKENS, kv_heads, layer.head_dim)
            row: Shape = (TOKENS, 1, 1) if latent else stored
            op, kernel = self._ops.store
            yield EngineKernel(
                op, (stored, row, stored, stored, (TOKENS,)), (HALF, HALF, cache, cache, INTEGER), kernel
            )
        if layer.indexer and latent:
            yield from self._select_keys(layer.indexer, latent.rotated)
            yield from self._attend_to_selected(layer.indexer, latent, heads, cache)
            return
        keys = Size("keys", chunk=layer.chunk or 0)
        decoded = (kv_heads, layer.head_dim, 0)
        read = decoded
        if latent:
            decoded = (1, latent.cached, latent.kv_rank)
            read = (heads, latent.plain + latent.rotated, latent.value)
        for sizes, (groups, width, values) in (
            ((SEQUENCES, 1, keys), decoded),
            ((Size("prompts"), Size("each"), Size("each")), read),
        ):
            batch, queries, seen = sizes
            yield EngineKernel(
                "tracekit::paged_attention",
                ((batch, queries, heads, width), (batch, seen, groups, width)),
                (HALF, cache),
                self._ops.attend,
                (str(layer.window or 0), str(values), *told),
                needs=batch.of,
            )

    def _select_keys(self, indexer: Indexer, turned: int) -> Iterator[EngineKernel]:
        """Yield what an indexer does between its matrices and attention: its queries and keys, scores, the choice."""
        op, kernel = self._ops.normalise
        key: Shape = (TOKENS, indexer.width)
        yield EngineKernel(op, (key, key, (indexer.width,)), (HALF,) * 3, kernel)
        op, kernel = self._ops.rotate
        queries: Shape = (TOKENS, indexer.heads * turned)
        table: tuple[Shape, ...] = ((TOKENS,), queries, (TOKENS, turned), (), (TOKENS, turned))
        yield EngineKernel(op, table, (INTEGER, HALF, HALF, "Scalar", HALF), kernel)
        op, kernel = self._ops.quantise
        for rows in (Size("tokens", indexer.heads), TOKENS):
            cast: Shape = (rows, indexer.width)
            yield EngineKernel(op, (cast, cast, (1,)), (NARROW, HALF, SINGLE), kernel)
        for batch, each, seen in _list_sequences():
            scored: tuple[Shape, ...] = ((batch, each, indexer.heads, indexer.width), (batch, seen, indexer.width))
            yield EngineKernel("tracekit::index_scores", scored, (NARROW, NARROW), "gemm", needs=batch.of)
            chosen: tuple[Shape, ...] = ((batch, each, seen), (batch, each, indexer.selected))
            yield EngineKernel("tracekit::select_keys", chosen, (SINGLE, "int"), "topk_kernel", needs=batch.of)

    def _attend_to_selected(
        self, indexer: Indexer, latent: LatentAttention, heads: int, cache: str
    ) -> Iterator[EngineKernel]:
        for batch, each, seen in _list_sequences():
            yield EngineKernel(
                "tracekit::sparse_attention",
                ((batch, each, heads, latent.cached), (batch, seen, 1, latent.cached)),
                (HALF, cache),
                "sparse_mla_fwd",
                (str(indexer.selected), str(latent.kv_rank)),
                needs=batch.of,
            )


def _list_sequences() -> tuple[tuple[Size, int | Size, Size], ...]:
    """List sequences that decode and prompts, each with its number, its queries, and its keys."""
    return (SEQUENCES, 1, Size("keys")), (Size("prompts"), Size("each"), Size("each"))


def _list_modes(engine: ServingEngine) -> tuple[tuple[str, str], ...]:
    """List DeepEP's modes, each with the size of a step that it is for; none where collectives exchange tokens."""
    if engine.backend not in BACKENDS:
        return ()
    of_prompts, of_decodes = BACKENDS[engine.backend]
    return ((of_prompts, "tokens"),) if of_prompts == of_decodes else ((of_prompts, "new"), (of_decodes, "decoding"))


def _find_whole_expert(layer: TransformerLayer, role: str, hidden: int) -> tuple[int, int]:
    """Return columns and rows of an expert's matrix that isn't split."""
    if role == roles.EXPERTS_OUT:
        return hidden, layer.mlp_width
    return (2 if layer.is_gated else 1) * layer.mlp_width, hidden


def _count_rows(role: str, layer: TransformerLayer) -> Size:
    """Return the rows of a matrix product's input."""
    if role in roles.PER_HEAD:
        return TOKENS if layer.indexer else SEQUENCES
    return {roles.KEYS_AND_VALUES: NEW, roles.LOGITS: SAMPLED}.get(role, TOKENS)


def _name_module(role: str) -> str:
    if role == roles.LOGITS:
        return HEAD
    return ATTENTION if role in (*roles.BEFORE_MIXER, roles.OUTPUT, roles.EXPAND) else MLP
