"""Read the throughputs of published jobs, and capture the kernels that a step of each launches."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache

import polars as pl
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.validation.published_jobs import language, vision
from tests.validation.published_jobs.llama import Llama
from tests.validation.published_jobs.mpt import Decoder
from tests.validation.study import read_published
from tracekit.capturing.calls import Call
from tracekit.capturing.cuda_choices import choose_as_cuda
from tracekit.capturing.ops import Capture
from tracekit.capturing.optimizers import build_fused_call
from tracekit.capturing.program import tabulate_kernels

PIXELS, TOKENS, ANSWERS = 224, 384, 2
FLASH_ATTENTION = {
    "cudnn_generated_fort_native_sdpa_flash_fprop": "flash_fwd_kernel",
    "cudnn_generated_fort_native_sdpa_flash_bprop": "flash_bwd_kernel",
}
"""Kernels of today's PyTorch -> those of 2023's."""


@dataclass(frozen=True)
class Job:
    """A model's step.

    Attributes:
        model: Its name.
        step: 'infer', 'train', or 'recompute': training that works out activations again on the way back.
        precision: 'amp' (fp16 with autocast, channels last), 'half' (all fp16), 'bf16' (all of it) or 'fp32', which is
            TF32 where there is.
    """

    model: str
    step: str
    precision: str

    @property
    def trains(self) -> bool:
        """Return whether it has a backward pass."""
        return self.step != "infer"


@dataclass(frozen=True)
class PublishedJob:
    """Throughput of a job on one GPU."""

    source: str
    job: Job
    gpu: str
    batch: int
    samples_per_s: float


def read_published_jobs() -> Iterator[PublishedJob]:
    """Yield the published throughputs."""
    for row in read_published("job_throughputs").iter_rows(named=True):
        job = Job(row["job"], row["step"], row["precision"])
        yield PublishedJob(row["source"], job, row["gpu"], row["batch"], row["samples_per_s"])


@cache
def tabulate_job_kernels(job: Job, batch: int) -> pl.DataFrame:
    """Return a step's kernels, as tracekit reads them from a trace of it, without their times."""
    return tabulate_kernels(capture_calls(job, batch))


def capture_calls(job: Job, batch: int) -> list[Call]:
    """Return the ops of a step that launch kernels."""
    seen = Capture(tf32=True)
    with ExitStack() as modes:
        modes.enter_context(torch.device("meta"))
        model, inputs, targets = _build_model(job, batch)
        model.train(job.trains)
        modes.enter_context(torch.set_grad_enabled(job.trains))
        modes.enter_context(seen)
        if job.precision == "amp":
            modes.enter_context(choose_as_cuda(torch.float16))
        output = model(inputs)
        if job.trains:
            functional.cross_entropy(output.float(), targets).backward()
    # Of decoders the published batch is one of several of a step, after which a GPU updates its part of the parameters.
    updates = job.trains and not isinstance(model, Decoder | Llama)
    return [*map(_run_as_published, seen.calls), *([_build_optimizer_call(model)] if updates else [])]


def _run_as_published(call: Call) -> Call:
    """Return a call as software of these jobs ran it: attention by FlashAttention 2, on each GPU."""
    return replace(call, kernels=tuple(FLASH_ATTENTION.get(name, name) for name in call.kernels))


def _build_model(job: Job, batch: int) -> tuple[nn.Module, Tensor, Tensor]:
    if job.model in language.MODELS:
        return _build_language_model(job, batch)
    return _build_decoder(job, batch) if "/" in job.model else _build_vision_model(job, batch)


def _build_decoder(job: Job, batch: int) -> tuple[nn.Module, Tensor, Tensor]:
    kind = Llama if job.model.startswith("llama") else Decoder
    model = kind(job.model, recomputes=job.step == "recompute").bfloat16()
    tokens = torch.empty(batch, model.tokens, dtype=torch.int64)
    return model, tokens, tokens.flatten()


def _build_vision_model(job: Job, batch: int) -> tuple[nn.Module, Tensor, Tensor]:
    layout = torch.channels_last if job.precision == "amp" else torch.contiguous_format
    images = torch.empty(batch, 3, PIXELS, PIXELS).to(memory_format=layout)
    model = vision.MODELS[job.model]().to(memory_format=layout)  # type: ignore[call-overload]  # not annotated
    return model, images, torch.empty(batch, dtype=torch.int64)


def _build_language_model(job: Job, batch: int) -> tuple[nn.Module, Tensor, Tensor]:
    model, tokens = language.MODELS[job.model](), torch.empty(batch, TOKENS, dtype=torch.int64)
    return (model.half() if job.precision == "half" else model), tokens, torch.empty(TOKENS, ANSWERS, dtype=torch.int64)


def _build_optimizer_call(model: nn.Module) -> Call:
    """Return one fused step in fp32: SGD with momentum of image classifiers, Adam of the others."""
    adam = isinstance(model, language.Bert)
    return build_fused_call("adam" if adam else "sgd", list(model.parameters()), torch.float32)
