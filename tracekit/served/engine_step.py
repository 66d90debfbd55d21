"""A step of a serving engine as the kernels that it launches for a model, from its config alone.

The matrices are those of :mod:`tracekit.workload.work_inference.model_roles`, fused as vLLM, SGLang and TensorRT-LLM
fuse them: query, key and value in one, gate and input of an MLP in one. Between them stand the engines' own kernels::

    add-norm, [quantise] qkv, rope, store in the cache, attention, [quantise] output,
    add-norm, [quantise] gate and up, SiLU and product, [quantise] down                      of each layer
    add-norm, rows that are sampled, logits, softmax, choice                                 at the end

Kinds of kernels are vLLM's (``vllm/model_executor/layers``, ``csrc``), which SGLang and TensorRT-LLM have under other
names; what differs between engines is how long they take, by the framework that is told.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracekit.capturing.calls import Call, OpProfile
from tracekit.capturing.options import CONFIG_SUFFIX
from tracekit.capturing.program import CapturedProgram
from tracekit.capturing.timed_trace import REFERENCE_GPU, CaptureSetting, load_captured
from tracekit.errors import ModelConfigError, RequestError
from tracekit.messages import models
from tracekit.messages import serving as messages
from tracekit.models.captured import CaptureFacts
from tracekit.models.llm import TransformerLayer, read_config_text
from tracekit.served.kv_memory import count_cached
from tracekit.served.precision import parse_served_model
from tracekit.served.steps import ACTIVATION_BYTES, CACHE_BYTES, QUANTISED, ServedModel
from tracekit.trace import Trace
from tracekit.workload.work_inference import model_roles as roles

HALF, SINGLE, NARROW, INTEGER = "c10::BFloat16", "float", "c10::Float8_e4m3fn", "long int"
UNQUANTISED = (roles.LOGITS, roles.ROUTER, roles.SHARED_GATE, roles.ABSORB, roles.EXPAND)
"""Matrices that quantised checkpoints leave in 16 bits."""
ACTIVATED = (roles.MLP_OUT, roles.SHARED_OUT, roles.EXPERTS_OUT)
MODULE = "nn.Module: "
ATTENTION, MLP, HEAD = "Attention", "Mlp", "Head"


def read_served_model(name: str, precision: str | None, cache_type: str | None) -> ServedModel:
    """Read the model of a ``config.json``.

    Args:
        name: The file.
        precision: Format of its products; None as the config says.
        cache_type: Format of keys and values; None for bf16.

    Raises:
        RequestError: It is no such file, or a format is unknown.
        ModelConfigError: As :func:`tracekit.models.llm.read_model_config`.
    """
    if not name.endswith(CONFIG_SUFFIX):
        raise RequestError(models.ENGINE_OF_CONFIG(program=name))
    return parse_served_model(read_config_text(name), name, precision, cache_type)


def capture_engine_step(
    model: ServedModel, framework: str, step: "EngineStep", gpu: str | None, setting: CaptureSetting
) -> Trace:
    """Return the trace of a step, launched by a CUDA graph, with the times of ``gpu``, by default of the reference.

    Args:
        model: What is served.
        framework: The engine, with its release where that is known.
        step: The step.
        gpu: Name of the GPU.
        setting: What else its times depend on.

    Raises:
        ModelConfigError: As :func:`build_engine_step`.
        PredictorError: The GPU is unknown or its name ambiguous.
    """
    program = build_engine_step(model, framework, step)
    return load_captured(program, gpu or REFERENCE_GPU, cuda_graph=True, setting=replace(setting, framework=framework))


@dataclass(frozen=True, slots=True)
class EngineStep:
    """What a step works on: sequences that are alike.

    Attributes:
        sequences: Number of sequences.
        tokens: New tokens of each: 1 of those that decode.
        context: Tokens in the cache of each, besides.
    """

    sequences: int
    tokens: int
    context: int

    @property
    def is_decode(self) -> bool:
        """Whether each sequence gets one token."""
        return self.tokens == 1


def build_engine_step(model: ServedModel, framework: str, step: EngineStep) -> CapturedProgram:
    """Build a step as a program on one GPU.

    Raises:
        ModelConfigError: The model has layers of linear attention.
    """
    if any(layer.linear for layer in model.config.layers):
        raise ModelConfigError(messages.SERVING_LAYERS(path=model.config.name, layers="linear attention"))
    placed = list(_StepBuilder(model, step).list_calls())
    calls = tuple(call for _, call in placed)
    profile = _build_profile([place for place, _ in placed])
    weights = model.count_weight_bytes(1)
    cache = step.sequences * (step.context + step.tokens) * sum(map(count_cached, model.config.layers))
    held = round(weights + cache * CACHE_BYTES[model.cache_type])
    widest = max((layer.mlp_width * (2 if layer.is_gated else 1) for layer in model.config.layers), default=0)
    live = round(step.sequences * step.tokens * (2 * model.config.hidden + widest) * ACTIVATION_BYTES)
    facts = CaptureFacts(
        gpu="",
        parameters=round(model.count_parameters()),
        parameter_bytes=round(weights),
        held_bytes=held,
        peak_bytes=held + live,
        trains=False,
        batch=step.sequences,
        tokens=step.sequences * step.tokens,
        quantization=model.precision if model.precision in QUANTISED else "",
        engine=framework,
    )
    return CapturedProgram(f"{model.config.architecture} on {framework}", calls, profile, facts)


_Placed = tuple[tuple[str, int], Call]


class _StepBuilder:
    def __init__(self, model: ServedModel, step: EngineStep) -> None:
        self._model, self._config, self._step = model, model.config, step
        self._tokens = step.sequences * step.tokens
        self._is_absorbed = step.is_decode and any(layer.latent for layer in self._config.layers)

    def list_calls(self) -> Iterator[_Placed]:
        """List the calls in order, each with its module and the layer's number."""
        hidden, tokens = self._config.hidden, self._tokens
        vocabulary = self._config.vocabulary
        yield (HEAD, 0), _call("aten::embedding", [[vocabulary, hidden], [tokens]], [HALF, INTEGER], "embedding_kernel")
        fusion = roles.Fusion(
            qkv=True, gate=True, router=True, logits=True, absorbed=self._is_absorbed, shared_gate=True
        )
        listed = roles.list_roles(self._config, fusion, 1)
        reached, normed = -1, ("", -1)
        for segment, role, n, k, layer in listed.select(
            "segment", "role", "n_of_model", "k_of_model", "layer"
        ).iter_rows():
            if segment > max(reached, 0):
                for before in range(max(reached, 0), segment):
                    yield from (((ATTENTION, before), call) for call in self._list_attention(before))
            reached = segment
            module = _name_module(role)
            place = (module, layer)
            if place != normed and role not in (roles.OUTPUT, roles.EXPAND):
                yield place, self._add_norm()
            normed = place
            yield from ((place, call) for call in self._list_product(self._config.layers[layer], role, n, k))

    def _add_norm(self) -> Call:
        shape = [self._tokens, self._config.hidden]
        return _call("_C::fused_add_rms_norm", [shape, shape, shape[1:]], [HALF] * 3, "fused_add_rms_norm_kernel")

    def _list_product(self, layer: TransformerLayer, role: str, n: int, k: int) -> Iterator[Call]:
        rows = self._tokens
        if role == roles.LOGITS:
            rows = self._step.sequences
            if not self._step.is_decode:
                yield _call("aten::index_select", [[self._tokens, k], [], [rows]], [HALF, "Scalar", INTEGER], "gather")
        if role in ACTIVATED:
            routed = rows * layer.top_k if role == roles.EXPERTS_OUT else rows
            wide = [routed, (2 if layer.is_gated else 1) * k]
            name = "_C::silu_and_mul" if layer.is_gated else "aten::gelu"
            shapes = [[routed, k], wide] if layer.is_gated else [wide]
            yield _call(name, shapes, [HALF] * len(shapes), "act_and_mul_kernel" if layer.is_gated else "gelu_kernel")
        precision = "bf16" if role in UNQUANTISED else self._model.precision
        if precision in QUANTISED:
            yield _call(
                "_C::dynamic_scaled_fp8_quant", [[rows, k], [rows, k], [1]], [NARROW, HALF, SINGLE], "scaled_fp8_quant"
            )
        yield self._build_product(layer, role, (rows, n, k), precision)
        yield from self._follow_product(layer, role, rows, n)

    def _build_product(self, layer: TransformerLayer, role: str, size: tuple[int, int, int], precision: str) -> Call:
        rows, n, k = size
        types = [NARROW if precision in QUANTISED else HALF] * 2
        told = [json.dumps(precision)]
        if role in roles.OF_EXPERTS:
            shapes: list[Any] = [[rows, k], [layer.experts, k, n], [], []]
            return _call("tracekit::expert_gemm", shapes, types, "gemm", [str(layer.top_k), *told])
        if role in roles.PER_HEAD:
            return _call("aten::bmm", [[layer.heads, rows, k], [layer.heads, k, n]], types, "gemm")
        if precision in QUANTISED:
            return _call("tracekit::quantised_linear", [[rows, k], [k, n], []], types, "gemm", told)
        return _call("aten::mm", [[rows, k], [k, n]], types, "gemm")

    def _follow_product(self, layer: TransformerLayer, role: str, rows: int, n: int) -> Iterator[Call]:
        if role == roles.ROUTER:
            chosen = [rows, layer.top_k]
            yield _call(
                "_moe_C::topk_softmax",
                [chosen, chosen, chosen, [rows, n]],
                [SINGLE, INTEGER, INTEGER, HALF],
                "topkGating_softmax",
            )
        elif role == roles.EXPERTS_OUT:
            yield _call("_moe_C::moe_sum", [[rows, layer.top_k, n], [rows, n]], [HALF, HALF], "moe_sum_kernel")
        elif role == roles.LOGITS:
            logits = [rows, n]
            yield _call("aten::_softmax", [logits, [], []], [SINGLE, "Scalar", "Scalar"], "softmax_kernel")
            yield _call("aten::argmax", [logits, []], [SINGLE, "Scalar"], "reduce_kernel")

    def _list_attention(self, number: int) -> Iterator[Call]:
        layer, step, tokens = self._config.layers[number], self._step, self._tokens
        cache = NARROW if self._model.cache_type == "fp8" else HALF
        keys, latent = step.context + step.tokens, layer.latent
        heads, kv_heads, width, values = layer.heads, layer.kv_heads, layer.head_dim, 0
        kept = keys
        if latent and self._is_absorbed:
            kv_heads, width, values = 1, latent.cached, latent.kv_rank
        elif latent:
            kv_heads, width, values = heads, latent.plain + latent.rotated, latent.value
        turned = latent.rotated if latent else layer.head_dim
        new_keys = 1 if latent else layer.kv_heads
        yield _call(
            "_C::rotary_embedding",
            [[tokens], [tokens, heads * turned], [tokens, new_keys * turned], [], [tokens, turned]],
            [INTEGER, HALF, HALF, "Scalar", HALF],
            "rotary_embedding_kernel",
        )
        stored = [tokens, 1, latent.cached] if latent else [tokens, layer.kv_heads, layer.head_dim]
        row = [tokens, 1, 1] if latent else stored
        yield _call(
            "_C_cache_ops::reshape_and_cache_flash",
            [stored, row, stored, stored, [tokens]],
            [HALF, HALF, cache, cache, INTEGER],
            "reshape_and_cache_flash_kernel",
        )
        if layer.chunk and kept > layer.chunk:
            kept = max(layer.chunk // 2, step.tokens)
        yield _call(
            "tracekit::paged_attention",
            [[step.sequences, step.tokens, heads, width], [step.sequences, kept, kv_heads, width], [], []],
            [HALF, cache],
            "paged_attention_kernel",
            [str(layer.window or 0), str(values)],
        )


def _name_module(role: str) -> str:
    if role == roles.LOGITS:
        return HEAD
    return ATTENTION if role in (*roles.BEFORE_MIXER, roles.OUTPUT, roles.EXPAND) else MLP


def _call(op: str, dims: list[Any], types: Sequence[str], kernel: str, values: Sequence[str] = ()) -> Call:
    """Build a call with one kernel; ``values`` are those of its last arguments, which aren't tensors."""
    tensors = len(dims) - len(values)
    told = [*types, *["Scalar"] * (len(dims) - len(types))]
    return Call(op, dims, told, [*[""] * tensors, *values], (kernel,))


def _build_profile(places: Sequence[tuple[str, int]]) -> OpProfile:
    """Build the modules around calls: a decoder layer with its attention and its MLP, a head at the end."""
    profile = OpProfile(events=[], marks_us=[float(at) for at in range(len(places))], launched_from=[-1] * len(places))
    for names, margin in ((_name_outer, 0.4), (_name_inner, 0.2)):
        begun = 0
        for at in range(1, len(places) + 1):
            if at < len(places) and names(places[at]) == names(places[begun]):
                continue
            event = {"cat": "python_function", "name": MODULE + names(places[begun])}
            profile.events.append(event | {"ts": begun - margin, "dur": at - begun - 1 + 2 * margin, "args": {}})
            begun = at
    profile.events.sort(key=lambda event: (event["ts"], -event["dur"]))
    return profile


def _name_outer(place: tuple[str, int]) -> str:
    return f"{HEAD}_{place[1]}" if place[0] == HEAD else f"DecoderLayer_{place[1]}"


def _name_inner(place: tuple[str, int]) -> str:
    return f"{place[0]}_{place[1]}"
