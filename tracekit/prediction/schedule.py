"""Pipeline schedules: in which order each stage works through its micro-batches, and when it is done.

1F1B (Narayanan et al., PipeDream, 2019) and its interleaved form, in which each stage holds several chunks of layers
(Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, 2021). Chunks are
numbered along the model: chunk ``c`` lies on stage ``c % stages``.
"""

import numba
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]


def order(stages: int, chunks: int, micro_batches: int) -> Ints:
    """What each stage does, one after the other: ``2 x micro-batch passes of a chunk``.

    Args:
        stages: Of the pipeline.
        chunks: Of layers on each stage; 1 is plain 1F1B.
        micro_batches: In a step; of several chunks, a multiple of the stages.

    Returns:
        Shape (stages, 2 x chunks x micro-batches, 3): whether it is a backward pass, its chunk, its micro-batch.
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


def ends(forward: Array, backward: Array, sends: Array, stages: int, micro_batches: int) -> Array:
    """When each stage has done its last pass, from the start of the step.

    A pass begins once the stage is free and its input has come; sending holds up the receiver only.

    Args:
        forward: Time of each chunk's forward pass of a micro-batch, along the model.
        backward: The same of the backward pass.
        sends: From each chunk to the next, one less.
        stages: Of the pipeline.
        micro_batches: In a step.

    Returns:
        By stage, in the unit of the times.
    """
    tasks = order(stages, forward.size // stages, micro_batches)
    result: Array = _ends(tasks, forward, backward, np.append(sends, 0.0), micro_batches)
    return result


@numba.njit(cache=True)
def _ends(
    tasks: Ints, forward: Array, backward: Array, sends: Array, micro_batches: int
) -> Array:  # pragma: no cover - compiled
    chunks = forward.size
    done = np.full((2, chunks, micro_batches), -1.0)
    free = np.zeros(tasks.shape[0])
    next_task = np.zeros(tasks.shape[0], dtype=np.int64)
    left = tasks.shape[0] * tasks.shape[1]
    while left:
        before = left
        for stage in range(tasks.shape[0]):
            while next_task[stage] < tasks.shape[1]:
                back, chunk, batch = tasks[stage, next_task[stage]]
                ready = 0.0
                if back == 0 and chunk > 0:
                    sent = done[0, chunk - 1, batch]
                    ready = sent + sends[chunk - 1] if sent >= 0 else -1.0
                elif back == 1 and chunk < chunks - 1:
                    sent = done[1, chunk + 1, batch]
                    ready = sent + sends[chunk] if sent >= 0 else -1.0
                if ready < 0:
                    break
                free[stage] = max(free[stage], ready) + (backward[chunk] if back else forward[chunk])
                done[back, chunk, batch] = free[stage]
                next_task[stage] += 1
                left -= 1
        if left == before:
            raise AssertionError("the schedule waits for itself")
    return free
