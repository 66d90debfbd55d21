"""What frameworks that train language models make of a model's code: fusions, launches, optimizers.

=============  =====================================================================================================
plain          The model's own code by eager PyTorch, as it stands.
hf             Hugging Face's Trainer: that code too, and the fused AdamW (TrainingArguments.optim's default).
torchtitan     Each block by torch.compile where it is asked for, FSDP2, torchao's fp8, the fused AdamW; selective
               recomputation by default (torchtitan/models/llama3/train_configs/llama3_8b.toml).
megatron       Megatron-Core with Transformer Engine: norms, rope, SwiGLU and cross-entropy are one kernel each, as is
               attention, also with sinks and windows; CUDA graphs launch all or most of a step but the products of
               experts (Megatron-Bridge, perf_recipes/*/*.py: cuda_graph_impl), one kernel updates all parameters, and
               exchanges of tensor parallelism run beside the products (tp_comm_overlap).
=============  =====================================================================================================
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What a framework does beside the model's code.

    Attributes:
        fuses: Whether what lies between products is one kernel.
        cuda_graph: Whether CUDA graphs launch the kernels.
        hides_exchanges: Whether an exchange of tensor parallelism is split into as many pieces as there are ranks, all
            but the first of which run beside the product that makes or takes them (Transformer Engine's user buffers,
            transformer_engine/common/comm_gemm_overlap).
        optimizer: The optimizer where none is named.
        expert_launch_us: Time of the CPU for each expert of a GPU in each product of experts, on the reference host;
            CUDA graphs leave them out, since nobody knows beforehand how many tokens an expert gets.
        wide_state_bytes: Bytes that AdamW's parameter of 16 bits has beside itself, its gradient and two moments of 16
            bits.
        time_ratio: How many times as long the GPU's work takes as predicted kernel by kernel.
        half_width: Half-width, as a logarithm, of the 90 % interval of that ratio.
        expert_half_width: The same of what is unknown besides where ranks split experts, common to all of that work.
    """

    fuses: bool = False
    cuda_graph: bool = False
    hides_exchanges: bool = False
    optimizer: str | None = None
    expert_launch_us: float = 0.0
    wide_state_bytes: int = 0
    time_ratio: float = 1.0
    half_width: float = 0.0
    expert_half_width: float = 0.0


UNKNOWN_HALF_WIDTH = 0.31
"""Half-width, as a logarithm, of the 90 % interval of the time of a job whose stack nobody tells. Published training
jobs took 1.0 (timm, NVIDIA's examples), 1.17 (Lambda), 1.24 (fms-fsdp) and 1.31 (llm-foundry) times as long as their
kernels (tests/validation/results/whole_jobs/throughputs.md, medians of a source): a source's scatter by Student's t.
Few measurements: five sources, each of which lies in the interval that the four others give."""
PLAIN, TORCHTITAN, UNKNOWN_STACK = "plain", "torchtitan", "unknown"
TITAN_RATIO, MEGATRON_RATIO = 1.03, 0.9
"""Times that the GPU's work takes against the captured kernels. Few measurements: Llama-3 8B on torchtitan took 1.05
(Meta, H100) and 1.01 (Trainy, H200) with FlashAttention 2, on Megatron 0.81 (H100), 0.92 (B200) and 0.94 (GB200) times
as long as without them, each publisher or GPU one vote (tests/validation/results/whole_jobs/training_jobs.md). With
each left out in turn, the others' leave it 3 % and -12 to +8 % off. 1 for a stack switches it off."""
EXPERT_LAUNCH_US = 93.0
"""Of Megatron: CUDA graphs hold attention, router and what prepares the exchange (Megatron-Bridge, perf_recipes/qwen/
b200/qwen3_moe.py: cuda_graph_scope), while Transformer Engine casts, splits and multiplies expert by expert (pytorch/
module/grouped_linear.py). Few measurements: Qwen3-30B-A3B on B200 with micro-batches of one sequence, 16 experts a GPU,
took 8.8 and 9.2 ms for each layer (Megatron-Bridge 26.02 and 25.11), twice as long as its kernels; on H100 with two
stages, from which nothing was chosen, 9.4 ms (26.02.01). That it grows with the experts of a GPU is from the code, and
from Qwen3-235B with 4 experts a GPU, whose layers took 7.7 ms. 0 switches it off."""
EXPERT_HALF_WIDTH = 0.6
"""Half-width, as a logarithm, of the 90 % interval of what a command leaves open of a job whose ranks split experts:
dispatcher, what overlaps its exchanges, fused permutations, which parts are CUDA graphs, what is recomputed. One job,
Qwen3-30B-A3B on 16 H100 in bf16, took 41.3, 42.0, 45.7, 31.3, 31.2, 24.7, 21.0 and 20.1 s by eight such settings
(Megatron-Bridge at 067f987, skills/nemo-mbridge-perf-moe-comm-overlap, -moe-dispatcher-selection and -cuda-graphs):
1.89 (Student's t) times the standard deviation of their logarithms, 0.319. No published throughput was used. Of few
measurements: one model on one GPU. 0 switches it off."""
TOLD_HALF_WIDTH = 0.17
"""Half-width, as a logarithm, of the 90 % interval of a ratio: 2.35 (Student's t, five figures of two means) times
their standard deviation of 0.071. It rests on the same five."""
WIDE_STATE_BYTES = 8
"""torchtitan keeps parameters, gradients and moments in fp32 and gathers 16 bits (FSDP2's mixed precision, 16 bytes in
all); Megatron's optimizer keeps fp32 copies and moments beside parameters and gradients of 16 bits (as many)."""
STACKS = {
    PLAIN: Stack(),
    "hf": Stack(optimizer="fused-adamw"),
    TORCHTITAN: Stack(
        optimizer="fused-adamw",
        wide_state_bytes=WIDE_STATE_BYTES,
        time_ratio=TITAN_RATIO,
        half_width=TOLD_HALF_WIDTH,
    ),
    "megatron": Stack(
        fuses=True,
        cuda_graph=True,
        hides_exchanges=True,
        optimizer="fused-adamw",
        expert_launch_us=EXPERT_LAUNCH_US,
        wide_state_bytes=WIDE_STATE_BYTES,
        time_ratio=MEGATRON_RATIO,
        half_width=TOLD_HALF_WIDTH,
        expert_half_width=EXPERT_HALF_WIDTH,
    ),
}


def find_stack(name: str) -> Stack:
    """Return a stack by the name that a captured program's facts hold; that of code that runs as it stands for none."""
    unknown = Stack(half_width=UNKNOWN_HALF_WIDTH, expert_half_width=EXPERT_HALF_WIDTH)
    return STACKS.get(name, unknown if name == UNKNOWN_STACK else STACKS[PLAIN])
