"""The largest batch that a target's memory holds."""

from math import inf
from unittest.mock import Mock

import pytest

import tracekit as tk
from tests.codes import find_message, has_code
from tests.layers import Layers
from tracekit.errors import RequestError
from tracekit.parallelism.layout import LayoutError
from tracekit.prediction.largest_batch import find_largest_batch
from tracekit.prediction.targets import resolve_targets
from tracekit.request.options.layout import parse_batch_factor

(TARGET,) = resolve_targets(["h100-sxm"])
MIB = 2**20


@pytest.mark.parametrize("most", [0, 1, 3, 4, 5, 37, 1000])
@pytest.mark.parametrize("samples", [1, 4, 6])
def test_any_number_of_samples_is_found(most, samples):
    """Of a trace of so many samples, whether more or fewer of them fit; one more doesn't."""
    predictor = Mock(fits=lambda target: round(target.layout.batch * samples, 9) <= most)
    assert find_largest_batch(predictor, TARGET, samples) == most


class Step(Layers):
    """A step of inference with 4 samples whose tensors took so much of a GPU."""

    def __init__(self, allocated: int) -> None:
        super().__init__()
        self.runs("aten::mm", [[4, 512], [512, 512]], "ampere_bf16_s16816gemm_bf16_128x128", 50)
        peaks = {"peak_allocated_bytes": allocated * MIB, "peak_reserved_bytes": allocated * MIB}
        self.builder.metadata["tracekit"] = {"memory": peaks}


def test_a_trace_whose_memory_is_known_has_a_largest_batch():
    """Of 80 GB 92 % can be used, 75,393 MiB of 81,920; 4 samples take 4,000 MiB, so each takes 1,000."""
    predicted = tk.predict(Step(4000).builder.load(), gpu="h100-sxm", batch="max", samples=4)["h100-sxm"]
    largest = find_message(predicted.notes, "batch-largest").values["samples"]
    room = 0.92 * predicted.target.gpu.gpu.memory_bytes / MIB
    assert largest == room // 1000
    assert predicted.layout is not None
    assert predicted.layout.batch == largest / 4
    assert predicted.memory.fits is True


def test_where_not_even_one_sample_fits_the_line_says_so():
    with pytest.raises(LayoutError, check=has_code("batch-fits-nowhere-here")):
        tk.predict(Step(4_000_000).builder.load(), gpu="h100-sxm", batch="max", samples=4)


def test_where_the_memory_is_unknown_so_is_the_batch():
    step = Step(1)
    del step.builder.metadata["tracekit"]
    with pytest.raises(LayoutError, check=has_code("batch-fit-unknown")):
        tk.predict(step.builder.load(), gpu="l4", batch="max", samples=4)


def test_what_is_no_batch_is_refused():
    assert parse_batch_factor(" max ") == inf
    assert parse_batch_factor(0.5) == parse_batch_factor("0.5") == 0.5
    for text in ("most", "0", "-1", "1e9"):
        with pytest.raises(RequestError, check=has_code("batch-factor-malformed")):
            parse_batch_factor(text)
