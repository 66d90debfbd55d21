"""What a served model does on each target: its cache, its loads, the largest load under limits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from predictors import Gpu
from tracekit.comm import Cluster
from tracekit.messages import Message
from tracekit.messages import serving as messages
from tracekit.messages.predictions import CACHE_OF_CAPTURE
from tracekit.prediction.energy import compute_idle_w
from tracekit.prediction.notes import describe_pace
from tracekit.served.calibrate import EngineCalibration
from tracekit.served.defaults import ENGINE_DEFAULTS, FRONT_END_TOKEN_US
from tracekit.served.kv_memory import CacheMemory, ServingError, compute_cache_memory
from tracekit.served.loop import Scheduler
from tracekit.served.model import CACHE_BYTES, UNMEASURED_CACHES, WEIGHT_BYTES, ServedModel, ServingEngine
from tracekit.served.simulate import (
    LoadAnswer,
    Pattern,
    Range,
    Replicas,
    RequestLoad,
    Simulation,
    find_largest_load,
    list_curve_loads,
)
from tracekit.served.step_table import EngineStepTable, build_step_tables
from tracekit.served.step_timer import StepTimer

CONTEXTS = (1024, 4096, 16384, 65536, 131072)
"""Lengths for which the sequences that fit are told, beside the asked one."""
MAX_GRID_SEQUENCES = 1024
MAX_CURVE = 512
MOST_RANKS, MOST_EXPERT_RANKS = 8, 64
DOLLARS_PER_MILLION = "dollars_per_million_tokens"


@dataclass(frozen=True, slots=True)
class Limits:
    """What users may wait for at most, at a percentile; None without a limit.

    Attributes:
        ttft_ms: To the first token.
        tpot_ms: For each token after it.
        percentile: Of the requests that have to meet both.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    percentile: int = 95

    @property
    def are_given(self) -> bool:
        """Whether there is a limit."""
        return self.ttft_ms is not None or self.tpot_ms is not None

    def are_met(self, figures: Mapping[str, float]) -> bool:
        """Return whether times meet the limits."""
        asked = {"ttft": self.ttft_ms, "tpot": self.tpot_ms}
        return all(limit is None or figures[f"{name}_p{self.percentile}_ms"] <= limit for name, limit in asked.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingQuestion:
    """What is asked of a served model.

    Attributes:
        model: The model.
        engine: What serves it.
        pattern: The requests.
        loads: The loads that are asked; none asks for a load at once.
        limits: What users may wait for.
        max_tokens: New tokens of a step; None as the engine does.
        max_sequences: Sequences at once, likewise.
        memory_share: Fraction of the GPU's memory, likewise.
        hit_rate: Fraction of prompts that the prefix cache holds.
        draft_tokens: Tokens that are verified beyond the next one.
        tokens_per_step: Tokens of a sequence from a step.
        replicas: Engines that prefill and that decode; None for one that does both.
        link_gbps: Rate at which a GPU's part of the cache moves between these, in 1e9 bytes/s.
        calibration: How the engine's steps differ from those predicted, if a trace tells.
    """

    model: ServedModel
    engine: ServingEngine
    pattern: Pattern
    loads: tuple[RequestLoad, ...]
    limits: Limits
    max_tokens: int | None = None
    max_sequences: int | None = None
    memory_share: float | None = None
    hit_rate: float = 0.0
    draft_tokens: int = 0
    tokens_per_step: float = 1.0
    replicas: tuple[int, int] | None = None
    link_gbps: float = 50.0
    calibration: EngineCalibration | None = None

    def get_step_limits(self, gpu: Gpu) -> tuple[int, int]:
        """Return the new tokens and the sequences of a step at most on a GPU; stages share the engine's sequences."""
        defaults = ENGINE_DEFAULTS[self.engine.framework]
        sequences = min(self.max_sequences or defaults.get_sequences(gpu), MAX_GRID_SEQUENCES)
        sequences = max(sequences // self.engine.stages, 1)
        return self.max_tokens or defaults.get_tokens(gpu), sequences

    @property
    def usable_share(self) -> float:
        """Fraction of the GPU's memory that the engine takes."""
        return self.memory_share or ENGINE_DEFAULTS[self.engine.framework].memory_share

    @property
    def mean_context(self) -> float:
        """Tokens that the cache holds of a sequence, halfway through its answer."""
        requests = self.pattern.requests
        return float((requests.input_tokens + requests.output_tokens / 2).mean())


@dataclass(frozen=True, slots=True)
class LargestLoad:
    """The largest load that meets the limits.

    Attributes:
        load: Requests at once, or a second: at the slow, the likely and the fast end of the steps' times; 0 for none.
        answer: What users of the likely one wait for; None where no load meets them.
    """

    load: Range
    answer: LoadAnswer | None


@dataclass(frozen=True, slots=True)
class ServedTarget:
    """A model as it is served on one target.

    Attributes:
        cluster: The GPUs.
        gpus: GPUs of all engines.
        memory: What one GPU holds.
        sequences: Sequences that fit at once, by their tokens.
        loads: What users of each load that is asked wait for.
        curve: The same of requests at once that double.
        largest: The largest load under the limits; None without limits.
        price: Dollars for an hour of one GPU; None without a price.
        notes: What to know.
        steps: How long the engine's steps take by their requests, for simulators of schedulers.
    """

    cluster: Cluster
    gpus: int
    memory: CacheMemory
    sequences: Mapping[int, int]
    loads: tuple[LoadAnswer, ...]
    curve: tuple[LoadAnswer, ...]
    largest: LargestLoad | None
    price: float | None
    notes: tuple[Message, ...]
    steps: StepTimer

    @property
    def gpu(self) -> str:
        """The GPU's name."""
        return self.cluster.gpu.slug


def serve_on(question: ServingQuestion, cluster: Cluster, price: float | None) -> ServedTarget:
    """Answer what is asked of a served model on one target.

    Args:
        question: What is asked.
        cluster: The GPUs.
        price: Dollars for an hour of one; None without a price.

    Raises:
        ServingError: The model or a request doesn't fit.
    """
    memory = compute_memory(question, cluster)
    longest = question.pattern.requests.longest + question.draft_tokens
    if not _fits(memory, longest):
        raise ServingError(_explain_misfit(question, cluster, memory, longest))
    simulation = _build_simulation(question, cluster, memory)
    loads = tuple(_add_dollars(simulation.answer(load), price, simulation.all_gpus) for load in question.loads)
    groups = question.engine.replicas
    most = min(max(memory.count_sequences(int(longest)), 1) * groups, MAX_CURVE)
    usual = replace(simulation, pattern=replace(question.pattern, count=None))
    curve = (
        ()
        if question.replicas
        else tuple(_add_dollars(usual.answer(load), price, simulation.all_gpus) for load in list_curve_loads(most))
    )
    largest = _find_largest(question, simulation, price) if question.limits.are_given else None
    lengths = sorted({longest, *(one for one in CONTEXTS if one > longest)})
    sequences = {one: memory.count_sequences(one) * groups for one in lengths}
    notes = tuple(_list_notes(question, cluster, simulation, loads))
    return ServedTarget(
        cluster, simulation.all_gpus, memory, sequences, loads, curve, largest, price, notes,
        StepTimer(simulation.tables),
    )  # fmt: skip


def compute_memory(question: ServingQuestion, cluster: Cluster) -> CacheMemory:
    """Compute what one GPU of a target holds."""
    engine, (max_tokens, max_sequences) = question.engine, question.get_step_limits(cluster.gpu)
    return compute_cache_memory(
        question.model.config,
        cluster.gpu,
        ranks=engine.ranks,
        replicas=engine.replicas,
        stages=engine.stages,
        weight_bytes=question.model.count_weight_bytes(engine.ranks, engine.expert_ranks) / engine.stages,
        cache_item_bytes=CACHE_BYTES[question.model.cache_type],
        share=question.usable_share,
        max_tokens=max_tokens,
        max_sequences=max_sequences,
    )


def _build_simulation(question: ServingQuestion, cluster: Cluster, memory: CacheMemory) -> Simulation:
    defaults, gpu = ENGINE_DEFAULTS[question.engine.framework], cluster.gpu
    max_tokens, max_sequences = question.get_step_limits(gpu)
    longest = question.pattern.requests.longest + question.draft_tokens
    scheduler = Scheduler(
        max_tokens=max_tokens,
        max_sequences=max_sequences,
        pages=max(
            memory.count_pages(defaults.page_tokens, longest) // question.engine.stages,
            -(-longest // defaults.page_tokens),
        ),
        page_tokens=defaults.page_tokens,
        mixes=defaults.mixes,
        chunks=defaults.chunks,
        draft_tokens=question.draft_tokens,
        tokens_per_step=question.tokens_per_step,
        hit_rate=question.hit_rate,
        front_end_us=defaults.front_end_us,
        front_end_token_us=FRONT_END_TOKEN_US,
    )
    tables = build_step_tables(
        question.model,
        question.engine,
        cluster,
        question.pattern.requests,
        max_tokens,
        max_sequences,
        question.calibration,
    )
    if question.draft_tokens:
        tables = tables.scale(1 + question.draft_tokens / len(question.model.config.layers))
    replicas = None
    if question.replicas:
        transfer_us = memory.token_bytes / (question.link_gbps * 1e3)
        replicas = Replicas(*question.replicas, transfer_us)
    engine = question.engine
    return Simulation(question.pattern, scheduler, tables, engine.ranks, compute_idle_w(gpu), replicas, engine.batches)


def _add_dollars(answer: LoadAnswer, price: float | None, gpus: int) -> LoadAnswer:
    """Add the dollars of a million output tokens."""
    if price is None:
        return answer
    a_second, rate = price * gpus / 3600, answer.figures["output_tokens_per_s"]
    dollars = Range(*(1e6 * a_second / one for one in (rate.high, rate.likely, rate.low)))
    return replace(answer, figures={**answer.figures, DOLLARS_PER_MILLION: dollars})


def _find_largest(question: ServingQuestion, simulation: Simulation, price: float | None) -> LargestLoad:
    by_rate = bool(question.replicas) or any(load.rate for load in question.loads)
    most = simulation.scheduler.max_sequences * simulation.groups

    def meets(table: EngineStepTable, load: RequestLoad) -> bool:
        served = simulation.serve(load, table)
        return not served.is_overloaded and question.limits.are_met(served.figures)

    tables = simulation.tables
    found = [
        find_largest_load(partial(meets, table), by_rate=by_rate, most=most)
        for table in (tables.high, tables.likely, tables.low)
    ]
    amounts = [0.0 if load is None else load.rate or float(load.concurrency) for load in found]
    likely = found[1]
    answer = None if likely is None else _add_dollars(simulation.answer(likely), price, simulation.all_gpus)
    return LargestLoad(Range(*sorted(amounts)), answer)


def _explain_misfit(question: ServingQuestion, cluster: Cluster, memory: CacheMemory, longest: int) -> Message:
    remedies: list[Message] = []
    for kind in _list_remedies(question):
        fitting = (remedy for other, remedy in kind if _fits(compute_memory(other, cluster), longest))
        remedies += [*islice(fitting, 1)]
    left = memory.cache_bytes - memory.fixed_bytes - memory.window_bytes
    if left > 0 and memory.token_bytes and left // memory.token_bytes >= 1:
        remedies.append(messages.SERVING_FITS_TOKENS(tokens=int(left // memory.token_bytes)))
    return messages.SERVING_DOES_NOT_FIT(
        gpu=cluster.gpu.slug,
        weight_bytes=memory.weight_bytes,
        left_bytes=max(memory.cache_bytes, 0.0),
        tokens=longest,
        needed_bytes=memory.compute_sequence_bytes(longest),
        remedies=remedies or [messages.SERVING_FITS_NOTHING()],
    )


def _fits(memory: CacheMemory, tokens: float) -> bool:
    return memory.cache_bytes >= memory.compute_sequence_bytes(int(tokens))


Remedies = Iterator[tuple[ServingQuestion, Message]]


def _list_remedies(question: ServingQuestion) -> tuple[Remedies, ...]:
    """List what takes less memory, kind by kind, each from the smallest change on: GPUs, weights, the cache."""
    return _add_gpus(question), _narrow_weights(question), _narrow_cache(question)


def _add_gpus(question: ServingQuestion) -> Remedies:
    """Yield engines of more GPUs: that share each layer, or the experts where these are shared already."""
    engine, layers = question.engine, question.model.config.layers
    shares_experts = engine.expert_ranks > 1
    ranks = engine.expert_ranks if shares_experts else engine.ranks
    while (ranks := 2 * ranks) <= (MOST_EXPERT_RANKS if shares_experts else MOST_RANKS):
        if any((one.experts if shares_experts else one.heads) % ranks for one in layers):
            break
        wider = replace(engine, expert_ranks=ranks) if shares_experts else replace(engine, ranks=ranks)
        told = messages.SERVING_FITS_EP(ep=ranks) if shares_experts else messages.SERVING_FITS_TP(tp=ranks)
        yield replace(question, engine=wider), told
    if not shares_experts and engine.ranks <= MOST_RANKS and any(one.experts for one in layers):
        yield from _add_gpus(replace(question, engine=replace(engine, expert_ranks=MOST_RANKS)))


def _narrow_weights(question: ServingQuestion) -> Remedies:
    """Yield weights of fewer bits."""
    now = WEIGHT_BYTES[question.model.precision]
    for precision in ("fp8", "int4"):
        if WEIGHT_BYTES[precision] < now:
            narrower = replace(question.model, precision=precision)
            yield replace(question, model=narrower), messages.SERVING_FITS_PRECISION(precision=precision)


def _narrow_cache(question: ServingQuestion) -> Remedies:
    """Yield a cache of fewer bits."""
    if CACHE_BYTES[question.model.cache_type] > CACHE_BYTES["fp8"]:
        narrower = replace(question.model, cache_type="fp8")
        yield replace(question, model=narrower), messages.SERVING_FITS_CACHE(cache="fp8")


def _list_notes(
    question: ServingQuestion, cluster: Cluster, simulation: Simulation, loads: Sequence[LoadAnswer]
) -> list[Message]:
    slug, scheduler = cluster.gpu.slug, simulation.scheduler
    notes = [
        messages.SERVING_SETTINGS(
            gpu=slug,
            framework=question.engine.framework,
            tokens=scheduler.max_tokens,
            sequences=scheduler.max_sequences,
            share_pct=100 * question.usable_share,
        )
    ]
    for one in loads:
        if one.is_overloaded:
            served = one.figures["requests_per_s"].likely
            notes.append(messages.SERVING_OVERLOADED(gpu=slug, rate=one.load.rate, served=served))
        elif one.preemptions:
            notes.append(messages.SERVING_PREEMPTED(gpu=slug, preemptions=one.preemptions))
    if _are_alike(question) and any(load.concurrency > 1 for load in question.loads):
        notes.append(messages.SERVING_WAVES_OPEN() if scheduler.mixes else messages.SERVING_WAVES())
    notes.append(_note_pace(slug, simulation, loads))
    if question.model.cache_type in UNMEASURED_CACHES:
        notes.append(CACHE_OF_CAPTURE(cache=question.model.cache_type))
    if question.calibration is not None:
        notes += _describe_calibration(question.calibration)
    if question.draft_tokens:
        notes.append(messages.SERVING_DRAFT_COST(layers=len(question.model.config.layers)))
    return notes


def _note_pace(slug: str, simulation: Simulation, loads: Sequence[LoadAnswer]) -> Message:
    """Note which of GPU and CPU sets the pace of decode steps, at the load whose CPU takes most beside the GPU."""
    pace = simulation.tables.pace
    decoding = simulation.groups * (simulation.replicas.decode if simulation.replicas else 1)
    under_way = [one.mean_requests / decoding for one in loads] or [1.0]
    counts = np.clip(np.rint(under_way), 1, pace.sequences[-1]).astype(int).tolist()
    found = {count: pace.find_us(count) for count in counts}
    count = max(found, key=lambda one: float(found[one][1][1] / found[one][0][1]))
    (gpu_low, gpu, gpu_high), (host_low, host, host_high) = found[count].tolist()
    return messages.SERVING_PACE(
        gpu=slug,
        sequences=count,
        gpu_us=gpu,
        gpu_ends_us=(gpu_low, gpu_high, gpu),
        host_us=host,
        host_ends_us=(host_low, host_high, host),
        pace=describe_pace((gpu_low, gpu, gpu_high), (host_low, host, host_high)),
    )


def _are_alike(question: ServingQuestion) -> bool:
    """Return whether all requests have one length."""
    return not question.pattern.spread and question.pattern.requests.arrival_us.size == 1


def _describe_calibration(found: EngineCalibration) -> list[Message]:
    factors = [messages.SERVING_FACTOR(percent=100 * factor, kind=kind) for kind, factor in found.factors.items()]
    if found.host_us is None:
        notes = [messages.SERVING_CALIBRATED(gpu=found.gpu, factors=factors, gap_us=found.gap_us)]
    else:
        notes = [messages.SERVING_CALIBRATED_PACE(gpu=found.gpu, factors=factors, host_us=found.host_us)]
    if found.assumed_context is not None:
        notes.append(messages.SERVING_CONTEXT_ASSUMED(context=found.assumed_context))
    return notes
