"""List the kernels of NVIDIA's DLRM as its sources launch them.

DeepLearningExamples, PyTorch/Recommendation/DLRM at 729963dd, on one GPU: 26 tables in one (``joint_fused``), MLPs of
apex, a kernel for the interaction. An MLP is one call of the host, whose layers have a GEMM and a kernel for bias and
ReLU each: apex gives cuBLASLt only layers without activation (``csrc/mlp_cuda.cu``). Kernels of NVIDIA's own count as
going through memory once; the tables' update counts as FBGEMM's, where PyTorch's ``index_add_`` adds atomically.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tracekit.models.lookups import ZipfPattern
from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns
from tracekit.workload.ops.table_lookups import TableLookup, compute_lookup_columns, compute_update_columns

TABLE_ROWS = (
    *(7912889, 33823, 582469, 245828, 11, 2209, 10667, 104, 4, 968, 15, 8165896, 17139, 2675940, 7156453, 302516),
    *(12022, 97, 35, 7339, 20046, 4, 7105, 1382, 63, 5554114),
)
"""Of Criteo's categories with a frequency threshold of 15 (``tests/feature_specs/criteo_f15.yaml``)."""
CRITEO_ALPHA = 1.45
"""Of NVIDIA's synthetic categories that stand for Criteo's (DLRM_and_DCNv2/dataloading/generate_feature_spec.py)."""
DENSE, WIDTH, INTERACTIONS = 13, 128, 480
"""Dense features; elements of a row; inputs of the top MLP: the bottom one's, 351 dot products, a column of zeros."""
BOTTOM, TOP, OUTPUT = (DENSE, 512, 256, WIDTH), (INTERACTIONS, 1024, 1024, 512, 256), (256, 1)
VECTORS = len(TABLE_ROWS) + 1
SINGLE_BYTES = 4

Kernel = Columns


@dataclass(frozen=True)
class HostCall:
    """A call of the host, and the kernels that it launches."""

    name: str
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class Dlrm:
    """A step of the model.

    Attributes:
        batch: Samples.
        dtype: 'fp16', 'tf32' or 'fp32': type of the GEMMs.
        trains: Whether tables stay in fp32 and parameters are cast in each step of mixed precision.
    """

    batch: int
    dtype: str
    trains: bool = False

    @property
    def is_half(self) -> bool:
        """Whether activations are fp16."""
        return self.dtype == "fp16"

    @property
    def item_bytes(self) -> int:
        """Bytes of an activation's element."""
        return 2 if self.is_half else SINGLE_BYTES

    @property
    def tables(self) -> list[TableLookup]:
        """Look-ups of a step."""
        table_bytes = SINGLE_BYTES if self.trains else self.item_bytes
        pattern = ZipfPattern(CRITEO_ALPHA)
        return [TableLookup(rows, WIDTH, self.batch, self.batch, table_bytes, pattern) for rows in TABLE_ROWS]

    def list_inference(self) -> Iterator[HostCall]:
        """Yield the calls of a forward pass."""
        if self.is_half:
            yield HostCall("cast of dense features", (self._build_pass(DENSE * (SINGLE_BYTES + self.item_bytes)),))
        yield from self._list_mlp("bottom MLP", BOTTOM)
        lookup = compute_lookup_columns(self.tables, self.item_bytes)
        yield HostCall("look-up", ({"family": "embedding", "dtype": self._vector_dtype, **lookup},))
        yield HostCall("concatenation", (self._build_pass(2 * VECTORS * WIDTH * self.item_bytes, "copy"),))
        yield HostCall("interaction", (self._build_pass((VECTORS * WIDTH + INTERACTIONS) * self.item_bytes),))
        yield from self._list_mlp("top MLP", TOP)
        yield HostCall("output layer", (self._build_gemm(self.batch, OUTPUT[1], OUTPUT[0]),))

    def list_training(self) -> Iterator[HostCall]:
        """Yield the calls of a training step with SGD."""
        yield from self.list_inference()
        yield HostCall("loss", (self._build_pass(4 * SINGLE_BYTES), self._build_pass(4 * SINGLE_BYTES)))
        yield HostCall("output layer, backward", tuple(self._list_layer_gradients(OUTPUT, is_first=False)))
        yield HostCall("top MLP, backward", tuple(self._list_mlp_gradients(TOP, is_first=False)))
        yield HostCall("interaction, backward", (self._build_pass(self._interaction_gradient_bytes),))
        yield HostCall("bottom MLP's gradient", (self._build_pass(3 * WIDTH * self.item_bytes),))
        yield HostCall("look-up, backward", tuple(self._list_lookup_gradients()))
        yield HostCall("bottom MLP, backward", tuple(self._list_mlp_gradients(BOTTOM, is_first=True)))
        yield HostCall("update", tuple(self._list_updates()))

    def list_input_copies(self) -> Iterator[HostCall]:
        """Yield the copies of a batch on the GPU to the inputs of a CUDA graph."""
        for width in (len(TABLE_ROWS) * INDEX_BYTES, DENSE * SINGLE_BYTES):
            yield HostCall("copy", ({"family": "memcpy", "copy_kind": "DtoD", "bytes": self.batch * width},))

    @property
    def _vector_dtype(self) -> str:
        return "fp16" if self.is_half else "fp32"

    @property
    def _interaction_gradient_bytes(self) -> int:
        return (2 * VECTORS * WIDTH + INTERACTIONS + WIDTH) * self.item_bytes

    def _build_pass(self, sample_bytes: int, family: str = "elementwise") -> Kernel:
        """Build a kernel that goes through memory once, so many bytes for each sample."""
        return {"family": family, "dtype": self._vector_dtype, "bytes": self.batch * sample_bytes}

    def _build_gemm(self, m: int, n: int, k: int, direction: str = "forward") -> Kernel:
        return {"family": "gemm", "dtype": self.dtype, "m": m, "n": n, "k": k, "direction": direction}

    def _list_mlp(self, name: str, widths: Sequence[int]) -> Iterator[HostCall]:
        """Yield the casts of an MLP's parameters, if any, and its forward pass."""
        if self.is_half and self.trains:
            for inputs, outputs in pairwise(widths):
                for numel in (inputs * outputs, outputs):
                    yield HostCall(f"{name}, cast", (self._build_cast(numel, SINGLE_BYTES, self.item_bytes),))
        kernels: list[Kernel] = []
        for inputs, outputs in pairwise(widths):
            kernels += [self._build_gemm(self.batch, outputs, inputs), self._build_pass(2 * outputs * self.item_bytes)]
        yield HostCall(name, tuple(kernels))

    def _list_mlp_gradients(self, widths: Sequence[int], *, is_first: bool) -> Iterator[Kernel]:
        """Yield the backward pass of an MLP: of each layer, ReLU and bias, then its GEMMs."""
        layers = list(pairwise(widths))
        for place, layer in reversed(list(enumerate(layers))):
            yield {"family": "memset", "dtype": "fp32", "bytes": 1024}
            yield self._build_pass(3 * layer[1] * self.item_bytes, "reduction")
            yield from self._list_gemms(layer, is_first=is_first and place == 0)

    def _list_layer_gradients(self, layer: tuple[int, int], *, is_first: bool) -> Iterator[Kernel]:
        yield from self._list_gemms(layer, is_first=is_first)
        yield self._build_pass(layer[1] * self.item_bytes, "reduction")

    def _list_gemms(self, layer: tuple[int, int], *, is_first: bool) -> Iterator[Kernel]:
        inputs, outputs = layer
        if not is_first:
            yield self._build_gemm(self.batch, inputs, outputs, "backward")
        yield self._build_gemm(outputs, inputs, self.batch, "backward")

    def _list_lookup_gradients(self) -> Iterator[Kernel]:
        """Yield the copy of a slice of the gradient, the indices with their offsets, and the gradient in fp32."""
        gradient = len(TABLE_ROWS) * WIDTH
        yield self._build_pass(2 * gradient * self.item_bytes, "copy")
        yield self._build_pass(2 * len(TABLE_ROWS) * INDEX_BYTES)
        yield self._build_pass(gradient * (self.item_bytes + SINGLE_BYTES))

    def _list_updates(self) -> Iterator[Kernel]:
        """Yield the update of the MLPs, and that of the tables by `index_add_`; mixed precision unscales gradients."""
        parameters = sum(
            inputs * outputs + outputs for mlp in (BOTTOM, TOP, OUTPUT) for inputs, outputs in pairwise(mlp)
        )
        gradient = len(TABLE_ROWS) * WIDTH
        if self.is_half:
            yield self._build_cast(parameters, self.item_bytes, SINGLE_BYTES)
            yield self._build_cast(parameters, SINGLE_BYTES, SINGLE_BYTES)
            yield self._build_pass(2 * gradient * SINGLE_BYTES)
        yield {"family": "optimizer", "dtype": "fp32", "bytes": 3 * SINGLE_BYTES * parameters}
        yield self._build_pass(2 * len(TABLE_ROWS) * INDEX_BYTES)
        updates = compute_update_columns(self.tables, "sgd")
        assert updates is not None
        yield {"family": "embedding", "dtype": "fp32", "direction": "backward", **updates}

    def _build_cast(self, numel: int, read_bytes: int, written_bytes: int) -> Kernel:
        return {"family": "elementwise", "dtype": "fp32", "bytes": numel * (read_bytes + written_bytes)}
