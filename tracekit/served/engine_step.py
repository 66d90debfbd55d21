"""A step of a serving engine as a program of the kernels that it launches for a model, from its config alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.capturing.calls import OpProfile
from tracekit.capturing.options import CONFIG_SUFFIX
from tracekit.capturing.program import CapturedProgram
from tracekit.capturing.timed_trace import REFERENCE_GPU, CaptureSetting, load_captured
from tracekit.errors import RequestError
from tracekit.messages import models
from tracekit.models.captured import CaptureFacts
from tracekit.models.llm import read_config_text
from tracekit.served.defaults import load_host_times
from tracekit.served.engine_kernels import HEAD, Place, StepSizes, list_engine_kernels
from tracekit.served.kv_memory import count_cached
from tracekit.served.model import (
    ACTIVATION_BYTES,
    CACHE_BYTES,
    QUANTISED,
    STORED,
    UNMEASURED_CACHES,
    ServedModel,
    ServingEngine,
)
from tracekit.served.precision import parse_served_model
from tracekit.trace import Trace

MODULE = "nn.Module: "


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
    model: ServedModel, engine: ServingEngine, step: "EngineStep", gpu: str | None, setting: CaptureSetting
) -> Trace:
    """Return the trace of a step, launched by a CUDA graph, with the times of ``gpu``, by default of the reference.

    Args:
        model: What is served.
        engine: What serves it.
        step: The step.
        gpu: Name of the GPU.
        setting: What else its times depend on.

    Raises:
        PredictorError: The GPU is unknown or its name ambiguous.
    """
    program = build_engine_step(model, engine, step)
    return load_captured(
        program, gpu or REFERENCE_GPU, cuda_graph=True, setting=replace(setting, framework=engine.name)
    )


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

    @property
    def sizes(self) -> StepSizes:
        """The same as its engine's kernels are told."""
        if self.is_decode:
            return StepSizes(0, 0, self.sequences, self.context)
        return StepSizes(self.sequences * self.tokens, self.sequences, 0, 0)


def build_engine_step(model: ServedModel, engine: ServingEngine, step: EngineStep) -> CapturedProgram:
    """Build a step as a program on one of the engine's GPUs.

    Raises:
        LayoutError: Heads or experts can't be split evenly.
    """
    launched = ((place, kernel.call(step.sizes)) for place, kernel in list_engine_kernels(model, engine))
    placed = [(place, call) for place, call in launched if call is not None]
    calls = tuple(call for _, call in placed)
    profile = _build_profile([place for place, _ in placed])
    weights = model.count_weight_bytes(engine.ranks, engine.expert_ranks) / engine.stages
    cached = sum(count_cached(layer, engine.ranks) for layer in model.config.layers)
    cache = step.sequences * (step.context + step.tokens) * cached
    held = round(weights + cache * CACHE_BYTES[model.cache_type])
    widest = max((layer.mlp_width * (2 if layer.is_gated else 1) for layer in model.config.layers), default=0)
    live = round(step.sequences * step.tokens * (2 * model.config.hidden + widest) * ACTIVATION_BYTES)
    host_us = engine.stages * load_host_times()[engine.framework].compute_us(np.array([float(step.sequences)]))
    low_us, likely_us, high_us = host_us[:, 0].tolist()
    facts = CaptureFacts(
        gpu="",
        parameters=round(model.count_parameters()),
        parameter_bytes=round(weights),
        held_bytes=held,
        peak_bytes=held + live,
        trains=False,
        batch=step.sequences,
        tokens=step.sequences * step.tokens * engine.stages,
        quantization=model.precision if model.precision in (*QUANTISED, *STORED) else "",
        engine=engine.name,
        cache=model.cache_type if model.cache_type in UNMEASURED_CACHES else "",
        engine_host_us=(low_us, likely_us, high_us),
        ranks=engine.world_size,
    )
    return CapturedProgram(f"{model.config.architecture} on {engine.name}", calls, profile, facts)


def _build_profile(places: Sequence[Place]) -> OpProfile:
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


def _name_outer(place: Place) -> str:
    return f"{HEAD}_{place[1]}" if place[0] == HEAD else f"DecoderLayer_{place[1]}"


def _name_inner(place: Place) -> str:
    return f"{place[0]}_{place[1]}"
