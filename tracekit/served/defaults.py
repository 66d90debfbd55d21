"""How serving engines form steps and take memory unless they are told."""

from collections.abc import Mapping
from dataclasses import dataclass

from predictors import Gpu

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
