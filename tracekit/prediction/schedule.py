"""Pipeline schedules: in which order each stage works through its micro-batches, and when it is done.

1F1B (Narayanan et al., PipeDream, 2019), its interleaved form, in which each stage holds several chunks of layers
(Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, 2021), and ZB-H1, in
which weights' gradients are put off until a stage would wait (Qi et al., Zero Bubble Pipeline Parallelism, 2023).
Chunks are numbered along the model: chunk ``c`` lies on stage ``c % stages``.
"""

import numba
import numpy as np

from tracekit.arrays import Floats, Ints

FORWARD, BACKWARD, WEIGHTS = range(3)
"""Kinds of passes; the backward pass of a schedule that puts off weights' gradients is that of its inputs alone."""


def order(stages: int, chunks: int, micro_batches: int) -> Ints:
    """What each stage does, one after the other: ``2 x micro-batch passes of a chunk``.

    Args:
        stages: Of the pipeline.
        chunks: Of layers on each stage; 1 is plain 1F1B.
        micro_batches: In a step; of several chunks, a multiple of the stages.

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


def split_order(stages: int, micro_batches: int) -> Ints:
    """ZB-H1: as 1F1B, but a stage works out its weights' gradients of a micro-batch as many later as its number.

    So each stage holds as many micro-batches as the first one of 1F1B does.

    Args:
        stages: Of the pipeline.
        micro_batches: In a step.

    Returns:
        Shape (stages, 3 x micro-batches, 3), as of ``order``.
    """
    number, kinds = np.arange(micro_batches), np.repeat([FORWARD, BACKWARD, WEIGHTS], micro_batches)
    tasks = np.empty((stages, 3 * micro_batches, 3), dtype=np.int64)
    for stage in range(stages):
        turns = np.concatenate([3 * (number - (stages - stage - 1)), 3 * number + 1, 3 * (number + stage) + 2])
        first = np.argsort(turns, kind="stable")
        tasks[stage] = np.stack([kinds, np.full(kinds.size, stage), np.tile(number, 3)], axis=1)[first]
    return tasks


def tasks_of(stages: int, chunks: int, micro_batches: int, splits: bool) -> Ints:
    """What each stage does, by :func:`order`, or :func:`split_order` where it ``splits`` the backward passes."""
    return split_order(stages, micro_batches) if splits else order(stages, chunks, micro_batches)


def ends(
    forward: Floats,
    backward: Floats,
    sends: Floats,
    stages: int,
    micro_batches: int,
    weights: Floats | None = None,
    first: Floats | None = None,
    tasks: Ints | None = None,
) -> Floats:
    """When each stage has done its last pass, from the start of the step.

    A pass begins once the stage is free and its input has come. A send holds up both ends, as in Megatron-LM, whose
    stages wait for what they sent (megatron/core/pipeline_parallel/p2p_communication.py): it makes a pass longer.

    Args:
        forward: Time of each chunk's forward pass of a micro-batch, along the model.
        backward: The same of the backward pass.
        sends: From each chunk to the next, one less.
        stages: Of the pipeline.
        micro_batches: In a step.
        weights: Part of ``backward`` that is weights' gradients, to be put off (ZB-H1); None runs it with the rest.
        first: How much longer each chunk's first forward pass takes; None where it is like the others.
        tasks: As :func:`tasks_of` gives them, where several such pipelines are scheduled.

    Returns:
        By stage, in the unit of the times.
    """
    if tasks is None:
        tasks = tasks_of(stages, forward.size // stages, micro_batches, weights is not None)
    late = np.zeros_like(backward) if weights is None else weights
    times = np.stack([forward + np.append(sends, 0.0), backward - late + np.insert(sends, 0, 0.0), late])
    result: Floats = _ends(tasks, times, np.zeros_like(forward) if first is None else first, micro_batches)
    return result


@numba.njit(cache=True)
def _ends(tasks: Ints, times: Floats, first: Floats, micro_batches: int) -> Floats:  # pragma: no cover - compiled
    chunks = times.shape[1]
    done = np.full((3, chunks, micro_batches), -1.0)
    free = np.zeros(tasks.shape[0])
    next_task = np.zeros(tasks.shape[0], dtype=np.int64)
    left = tasks.shape[0] * tasks.shape[1]
    while left:
        before = left
        for stage in range(tasks.shape[0]):
            while next_task[stage] < tasks.shape[1]:
                kind, chunk, batch = tasks[stage, next_task[stage]]
                ready = 0.0
                if kind == FORWARD and chunk > 0:
                    ready = done[0, chunk - 1, batch]
                elif kind == BACKWARD and chunk < chunks - 1:
                    ready = done[1, chunk + 1, batch]
                if ready < 0:
                    break
                free[stage] = max(free[stage], ready) + times[kind, chunk]
                if kind == FORWARD and batch == 0:
                    free[stage] += first[chunk]
                done[kind, chunk, batch] = free[stage]
                next_task[stage] += 1
                left -= 1
        if left == before:
            raise AssertionError("the schedule waits for itself")
    return free
