"""Compute pipeline schedules: the order of passes on each stage, and when each stage is done.

Three schedules: 1F1B (Narayanan et al., PipeDream, 2019); interleaved 1F1B, in which each stage has several chunks of
layers (Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, 2021); and
ZB-H1, in which stages defer weight gradients until they would wait (Qi et al., Zero Bubble Pipeline Parallelism, 2023).
Chunks are numbered along the model: chunk ``c`` lies on stage ``c % stages``.
"""

import numpy as np

from tracekit.arrays import Floats, Ints
from tracekit.compiled import compile_lazily

FORWARD, BACKWARD, WEIGHT_GRADIENT = range(3)
"""Kinds of passes; with deferred weight gradients, BACKWARD computes input gradients only."""


def order_1f1b(stages: int, chunks: int, micro_batches: int) -> Ints:
    """Return the order of passes on each stage by 1F1B.

    Each stage runs some forward passes (warm-up), then one forward and one backward pass in turn, then the remaining
    backward passes. With 3 stages and 4 micro-batches::

        stage 0 | F0 F1 F2 B0 F3 B1 B2 B3
        stage 1 | F0 F1 B0 F2 B1 F3 B2 B3
        stage 2 | F0 B0 F1 B1 F2 B2 F3 B3

    Args:
        stages: Number of stages.
        chunks: Chunks of layers on each stage; 1 is plain 1F1B.
        micro_batches: Micro-batches in a step; a multiple of ``stages`` for several chunks.

    Returns:
        Shape (stages, 2 x chunks x micro-batches, 3): the kind of pass, its chunk, its micro-batch.
    """
    passes = chunks * micro_batches
    number = np.arange(passes)
    turn, place = np.divmod(number, stages * chunks)
    micro_batch = turn * stages + place % stages
    chunk = place // stages
    tasks = np.empty((stages, 2 * passes, 3), dtype=np.int64)
    for stage in range(stages):
        ahead = stages - stage - 1
        warmup = min(passes, ahead if chunks == 1 else 2 * ahead + (chunks - 1) * stages)
        forward = np.where(number < warmup, number, 2 * number - warmup)
        backward = np.where(number < passes - warmup, warmup + 2 * number + 1, passes + number)
        tasks[stage, forward] = np.stack([0 * number, chunk * stages + stage, micro_batch], axis=1)
        tasks[stage, backward] = np.stack([0 * number + 1, (chunks - 1 - chunk) * stages + stage, micro_batch], axis=1)
    return tasks


def order_zero_bubble(stages: int, micro_batches: int) -> Ints:
    """Return the order of passes on each stage by ZB-H1.

    As 1F1B, but a stage computes the weight gradients (W) of a micro-batch later by as many micro-batches as its
    number. So each stage holds as many micro-batches as the first one of 1F1B. With 3 stages and 4 micro-batches::

        stage 0 | F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3
        stage 2 | F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3

    Args:
        stages: Number of stages.
        micro_batches: Micro-batches in a step.

    Returns:
        Shape (stages, 3 x micro-batches, 3), as of :func:`order_1f1b`.
    """
    number, kinds = np.arange(micro_batches), np.repeat([FORWARD, BACKWARD, WEIGHT_GRADIENT], micro_batches)
    tasks = np.empty((stages, 3 * micro_batches, 3), dtype=np.int64)
    for stage in range(stages):
        turns = np.concatenate([3 * (number - (stages - stage - 1)), 3 * number + 1, 3 * (number + stage) + 2])
        first = np.argsort(turns, kind="stable")
        tasks[stage] = np.stack([kinds, np.full(kinds.size, stage), np.tile(number, 3)], axis=1)[first]
    return tasks


def build_tasks(stages: int, chunks: int, micro_batches: int, splits: bool) -> Ints:
    """Build the tasks of each stage, with split backward passes (ZB-H1) where ``splits`` is true."""
    return order_zero_bubble(stages, micro_batches) if splits else order_1f1b(stages, chunks, micro_batches)


def compute_stage_ends(
    forward: Floats,
    backward: Floats,
    sends: Floats,
    stages: int,
    micro_batches: int,
    weights: Floats | None = None,
    first_delays: Floats | None = None,
    tasks: Ints | None = None,
) -> Floats:
    """Compute when each stage ends its last pass, from the start of the step.

    A pass begins once the stage is free and its input has arrived. A send blocks both stages, as in Megatron-LM, whose
    stages wait for their sends (megatron/core/pipeline_parallel/p2p_communication.py): it lengthens the pass.

    Args:
        forward: Time of each chunk's forward pass of a micro-batch, along the model.
        backward: The same of the backward pass.
        sends: From each chunk to the next, one less.
        stages: Of the pipeline.
        micro_batches: In a step.
        weights: Part of ``backward`` that is weights' gradients, to be put off (ZB-H1); None runs it with the rest.
        first_delays: How much longer each chunk's first forward pass takes; None where it is like the others.
        tasks: From :func:`build_tasks`, to schedule several such pipelines; None builds them.

    Returns:
        One time per stage, in the unit of the arguments.
    """
    if tasks is None:
        tasks = build_tasks(stages, forward.size // stages, micro_batches, weights is not None)
    late = np.zeros_like(backward) if weights is None else weights
    times = np.stack([forward + np.append(sends, 0.0), backward - late + np.insert(sends, 0, 0.0), late])
    delays = np.zeros_like(forward) if first_delays is None else first_delays
    ends, done = np.zeros(stages), np.full((3, forward.size, micro_batches), -1.0)
    next_task = np.zeros(stages, dtype=np.int64)
    if _run_tasks(stages, tasks.shape[1], tasks, forward.size, times, delays, micro_batches, done, next_task, ends):
        raise AssertionError("the schedule waits for itself")
    return ends


@compile_lazily
def _run_tasks(
    stages: int,
    tasks_of_stage: int,
    tasks: Ints,
    chunks: int,
    times: Floats,
    first_delays: Floats,
    micro_batches: int,
    done: Floats,
    next_task: Ints,
    free: Floats,
) -> int:  # pragma: no cover - compiled
    """Run all tasks, and return how many are left because they wait for one another."""
    left = stages * tasks_of_stage
    before = left + 1
    while left and left < before:
        before = left
        for stage in range(stages):
            while next_task[stage] < tasks_of_stage:
                task = 3 * (stage * tasks_of_stage + next_task[stage])
                kind, chunk, batch = tasks[task], tasks[task + 1], tasks[task + 2]
                ready = 0.0
                if kind == FORWARD and chunk > 0:
                    ready = done[(chunk - 1) * micro_batches + batch]
                elif kind == BACKWARD and chunk < chunks - 1:
                    ready = done[(chunks + chunk + 1) * micro_batches + batch]
                if ready < 0:
                    break
                free[stage] = max(free[stage], ready) + times[kind * chunks + chunk]
                if kind == FORWARD and batch == 0:
                    free[stage] += first_delays[chunk]
                done[(kind * chunks + chunk) * micro_batches + batch] = free[stage]
                next_task[stage] += 1
                left -= 1
    return left
