"""How serving engines form steps, take memory and keep their CPU busy unless they are told."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from predictors import Gpu
from predictors.given_files import read_toml
from tracekit.arrays import Floats

LARGE_MEMORY_BYTES = 70 * 2**30
FRONT_END_TOKEN_US = 4.0
"""What each token of a prompt takes before the engine has it: making it, HTTP, tokenising. Chosen with
:attr:`EngineDefaults.front_end_us`."""


@dataclass(frozen=True, slots=True)
class EngineDefaults:
    """What an engine does by default.

    Attributes:
        large_tokens: New tokens of a step on GPUs of 70 GiB or more.
        small_tokens: The same on smaller ones.
        large_sequences: Sequences that run at once on GPUs of 70 GiB or more.
        small_sequences: The same on smaller ones.
        memory_share: Fraction of the GPU's memory that it takes.
        page_tokens: Tokens of a page of the cache.
        mixes: Whether prompts join steps that decode.
        chunks: Whether a prompt may be split over steps.
        front_end_us: What its API server and a client take for a request, besides the tokens of its prompt.
    """

    large_tokens: int
    small_tokens: int
    large_sequences: int
    small_sequences: int
    memory_share: float
    page_tokens: int
    mixes: bool
    chunks: bool
    front_end_us: float

    def get_tokens(self, gpu: Gpu) -> int:
        """Return the new tokens of a step on a GPU."""
        return self.large_tokens if gpu.memory_bytes >= LARGE_MEMORY_BYTES else self.small_tokens

    def get_sequences(self, gpu: Gpu) -> int:
        """Return the sequences that run at once on a GPU."""
        return self.large_sequences if gpu.memory_bytes >= LARGE_MEMORY_BYTES else self.small_sequences


ENGINE_DEFAULTS: Mapping[str, EngineDefaults] = {
    "vllm": EngineDefaults(8192, 2048, 1024, 256, 0.9, 16, mixes=True, chunks=True, front_end_us=2e3),
    "sglang": EngineDefaults(8192, 4096, 1024, 256, 0.88, 1, mixes=False, chunks=True, front_end_us=2e3),
    "trtllm": EngineDefaults(8192, 8192, 2048, 2048, 0.9, 32, mixes=True, chunks=False, front_end_us=15e3),
}
"""vLLM: `EngineArgs` of its API server, V1 (max_num_batched_tokens, max_num_seqs, gpu_memory_utilization). SGLang:
`ServerArgs` (chunked_prefill_size by memory, mem_fraction_static, prefill first). TensorRT-LLM: `LlmArgs`
(max_num_tokens, max_batch_size, free_gpu_memory_fraction, no chunked context). The front end is what brings published
times to the first token nearest, of TensorRT-LLM with Qwen3-32B in fp8 on H100 and of vLLM with the same in bf16; other
models were left out. SGLang's hardly depend on it: it has vLLM's."""

HOST_FILE = Path(__file__).with_name("host_times.toml")


@dataclass(frozen=True, slots=True)
class EngineHostTimes:
    """CPU time of an engine's step, which the GPU's work hides where that takes longer.

    Attributes:
        step_us: Of a step: low, likely and high.
        sequence_us: Of each of its sequences besides.
    """

    step_us: Floats
    sequence_us: Floats

    def compute_us(self, sequences: Floats) -> Floats:
        """Return rows of low, likely and high for steps of so many sequences."""
        return np.asarray(self.step_us[:, None] + self.sequence_us[:, None] * sequences)


@functools.cache
def load_host_times() -> Mapping[str, EngineHostTimes]:
    """Load the CPU times of engines' steps by engine; their file says what each rests on."""
    intervals = read_toml(HOST_FILE)["interval"]
    return {
        engine: EngineHostTimes(np.array(one["step_us"], float), np.array(one["sequence_us"], float))
        for engine, one in intervals.items()
    }
