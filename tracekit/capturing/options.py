"""How a program is captured, and what names it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tracekit.capturing.torchtitan import TOML_SUFFIX, is_training_text
from tracekit.errors import RequestError
from tracekit.messages import models as messages
from tracekit.models.dlrm import DlrmEdits, parse_mlp, parse_table_spec
from tracekit.models.stacks import PLAIN, STACKS

CONFIG_SUFFIX = ".json"
TIMM_PREFIX = "timm:"
"""Before the name of one of timm's models."""
HEAD_BYTES = 1 << 20


def is_program(inputs: Sequence[str]) -> bool:
    """Return whether a command's inputs name a program.

    Programs are ``FILE.py:FUNCTION``, ``timm:MODEL``, ``config.json``, and the TOML of a torchtitan job.
    """
    if len(inputs) != 1:
        return False
    if is_timm_name(inputs[0]):
        return True
    given = Path(inputs[0])
    return strip_function(inputs[0]) != inputs[0] or is_config(given)


def is_timm_name(name: str) -> bool:
    """Return whether a name is that of one of timm's models."""
    return name.startswith(TIMM_PREFIX)


def strip_function(name: str) -> str:
    """Return the file of ``FILE.py:FUNCTION``; any other name as it is."""
    path, _, function = name.rpartition(":")
    return path if path.endswith(".py") and function.isidentifier() else name


def is_config(path: Path) -> bool:
    """Return whether a file is the configuration of a Hugging Face model, or that of a torchtitan job."""
    is_text = {CONFIG_SUFFIX: is_config_text, TOML_SUFFIX: is_training_text}.get(path.suffix)
    if is_text is None or not path.is_file():
        return False
    with path.open("rb") as file:
        return is_text(file.read(HEAD_BYTES))


def is_training_file(name: str) -> bool:
    """Return whether a name is that of a torchtitan job's file."""
    return name.endswith(TOML_SUFFIX)


def is_config_text(head: bytes) -> bool:
    """Return whether a file is one, by the beginning of its text."""
    return b'"model_type"' in head and b'"traceEvents"' not in head


AUTOCAST_DTYPES = ("bf16", "fp16")
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""Names of types -> PyTorch's."""
TF32 = "tf32"


@dataclass(frozen=True)
class NarrowFormat:
    """How products of fewer than 16 bits are trained.

    Attributes:
        dtype: Format of the products.
        multiple: Of a layer's widths, without which it stays as it is.
        scales_tensor: Whether a scale that holds for the whole tensor is found before it is cast, in a pass of its own.
    """

    dtype: str
    multiple: int
    scales_tensor: bool = False


NARROW_FORMATS = {
    "fp8": NarrowFormat("fp8", 16, scales_tensor=True),
    "fp8_rowwise": NarrowFormat("fp8", 16),
    "fp8_delayed": NarrowFormat("fp8", 16),
    "fp8_block": NarrowFormat("fp8_block", 128),
    "mxfp8": NarrowFormat("mxfp8", 32),
    "nvfp4": NarrowFormat("nvfp4", 16, scales_tensor=True),
}
"""One scale for each tensor as it is now, each row, each tensor as it was in earlier steps, each 128 (of weights 128 x
128), each 32 elements, and each 16 with one for the tensor beside (Transformer Engine's recipes, torchao's float8)."""
PRECISIONS = (*AUTOCAST_DTYPES, TF32, *NARROW_FORMATS)
FLASH = "flash"
ATTENTION_KINDS = ("eager", "sdpa", FLASH)
"""By plain products and a softmax, by the kernel that PyTorch chooses, and by FlashAttention 2."""
FULL, SELECTIVE = "full", "selective"
RECOMPUTE_KINDS = ("none", SELECTIVE, FULL)
FUSED = "fused-"
"""Before an optimizer's name: one kernel does all for many tensors, as with ``fused=True``."""
NO_OPTIMIZER = "none"
"""Says that a step ends without one, also where its stack has one."""
OPTIMIZERS = ("adamw", "adam", "sgd")
"""Those of PyTorch that may be fused."""
ADAMW_8BIT, MUON = "adamw-8bit", "muon"


@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """How a program is captured.

    Attributes:
        train: Whether the step has a backward pass.
        optimizer: The optimizer's step at its end; None for none.
        autocast: Type of mixed precision; None for none.
        tf32: Whether products of fp32 run in TF32.
        compile: Whether torch.compile fuses the model's kernels.
        channels_last: Whether images and weights of convolutions lie pixel after pixel.
        cuda_graph: Whether one CUDA graph launches all kernels.
        seq: Of a config: tokens of each sequence; None for the default.
        is_longest: Whether these are the most that fit on the targets.
        dtype: Of a config: type of its parameters; None for the default.
        attention: How attention is computed: 'eager', 'sdpa' or 'flash'; None as the config or the program has it.
        precision: Format of the linear layers' products: one of :data:`PRECISIONS`; None as the program has it.
        micro_batches: Forward and backward passes of a training step, whose gradients add up.
        stack: The framework that runs it: one of :data:`~tracekit.models.stacks.STACKS`; None where it isn't told.
        recompute: What layers run again in the backward pass: 'full' for all, 'selective' without attention and every
            second product; None or 'none' for nothing.
        lora: Rank of the adapters that are trained beside the frozen linear layers; None to train all parameters.
        measured: A recorded trace of the program, which corrects its times; None for none.
        table: Of a DLRM: embedding tables in place of its own, as :func:`parse_table_spec` takes them.
        bottom_mlp: Of a DLRM: widths of its bottom MLP; None for its own.
        top_mlp: Likewise.
    """

    train: bool = False
    optimizer: str | None = None
    autocast: str | None = None
    tf32: bool = False
    compile: bool = False
    channels_last: bool = False
    cuda_graph: bool = False
    seq: int | None = None
    is_longest: bool = False
    dtype: str | None = None
    attention: str | None = None
    precision: str | None = None
    micro_batches: int = 1
    stack: str | None = None
    recompute: str | None = None
    lora: int | None = None
    measured: str | None = None
    table: tuple[str, ...] = ()
    bottom_mlp: str | None = None
    top_mlp: str | None = None

    def __post_init__(self) -> None:
        self._check_training()
        if self.autocast not in (None, *AUTOCAST_DTYPES):
            raise RequestError(messages.AUTOCAST_UNKNOWN(autocast=self.autocast))
        if self.dtype not in (None, *DTYPES):
            raise RequestError(messages.DTYPE_UNKNOWN(dtype=self.dtype, known=list(DTYPES)))
        if self.attention not in (None, *ATTENTION_KINDS):
            raise RequestError(messages.ATTENTION_UNKNOWN(attention=self.attention, known=list(ATTENTION_KINDS)))
        if self.precision not in (None, *PRECISIONS):
            raise RequestError(messages.PRECISION_UNKNOWN(precision=self.precision, known=list(PRECISIONS)))
        if self.precision in (*AUTOCAST_DTYPES, TF32) and (self.autocast or self.tf32):
            raise RequestError(messages.PRECISION_TWICE(precision=self.precision))
        if self.stack not in (None, *STACKS):
            raise RequestError(messages.STACK_NAME_UNKNOWN(stack=self.stack, known=list(STACKS)))
        _ = self.dlrm_edits

    def _check_training(self) -> None:
        known = [*OPTIMIZERS, *(FUSED + one for one in OPTIMIZERS), ADAMW_8BIT, MUON, NO_OPTIMIZER]
        if self.optimizer is not None and self.optimizer not in known:
            raise RequestError(messages.OPTIMIZER_UNKNOWN(optimizer=self.optimizer, known=known))
        if self.optimizer is not None and not self.train:
            raise RequestError(messages.OPTIMIZER_WITHOUT_TRAINING())
        if self.recompute not in (None, *RECOMPUTE_KINDS):
            raise RequestError(messages.RECOMPUTE_UNKNOWN(recompute=self.recompute, known=list(RECOMPUTE_KINDS)))
        if self.lora and not self.train:
            raise RequestError(messages.LORA_WITHOUT_TRAINING())
        if self.recompute in (SELECTIVE, FULL) and not self.train:
            raise RequestError(messages.RECOMPUTE_WITHOUT_TRAINING())

    def follow_stack(self) -> "CaptureOptions":
        """Return the options with what the stack does where they don't say."""
        stack = STACKS[self.stack or PLAIN]
        return replace(
            self,
            compile=self.compile or stack.fuses,
            cuda_graph=self.cuda_graph or stack.cuda_graph,
            optimizer=self.optimizer or (stack.optimizer if self.train else None),
        )

    @property
    def dlrm_edits(self) -> DlrmEdits:
        """What changes in a DLRM's configuration."""
        return DlrmEdits(
            tables=tuple(map(parse_table_spec, self.table)),
            bottom_mlp=parse_mlp(self.bottom_mlp) if self.bottom_mlp is not None else (),
            top_mlp=parse_mlp(self.top_mlp) if self.top_mlp is not None else (),
        )
