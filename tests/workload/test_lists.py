"""Optimizers over lists without shapes, from their launch; worked out by hand."""

import pytest

from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

CHUNK = 65536


def kernel_of(name, **launch):
    return build_kernel_table(TraceBuilder().kernel(name, 60, 30, launch=10, **launch).load().rank()).row(0, named=True)


@pytest.mark.parametrize(
    ("name", "passes", "tensors"),
    [
        # Apex: gradient, parameter and two moments read, all but the first written.
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float>", 7, 36),
        ("void multi_tensor_apply_kernel<TensorListMetadata<2>, ScaleFunctor<float, float>, float>", 2, 64),
        ("void multi_tensor_apply_kernel<TensorListMetadata<1>, L2NormFunctor<float>, float*, bool>", 1, 110),
        ("void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<1>, "
         "at::native::ZeroFunctor<float, 1, 1, 0> >", 1, 110),
        ("void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>, "
         "at::native::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>, double, double>", 7, 36),
        ("void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, "
         "at::native::TernaryOpScalarFunctor<float, 2, 2, 0>, at::native::LerpFunctor<float>, float>", 3, 64),
        ("void at::native::multi_tensor_apply_kernel<at::native::TensorListScalarListMetadata<float, 3>, "
         "at::native::PointwiseOpScalarListFunctor<float, 3, 3, 0>, std::divides<float> >", 4, 48),
        ("void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<3>, "
         "at::native::PointwiseOpScalarFunctor<float, 3, 3, 0>, std::multiplies<float>, float>", 3, 48),
    ],
)  # fmt: skip
def test_blocks_are_chunks_of_every_list(name, passes, tensors):
    row = kernel_of(name, grid=[320, 1, 1], block=[512, 1, 1])
    assert (row["family"], row["work_from"], row["bytes"]) == ("optimizer", "geometry", passes * 320 * CHUNK * 4)
    assert (row["work_low"], row["work_high"]) == ((320 - tensors) / 320, 1.0)


def test_few_blocks_leave_a_wide_bracket():
    name = "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float>"
    assert kernel_of(name, grid=[20, 1, 1], block=[512, 1, 1])["work_low"] == 1 / 20


def test_without_a_grid_nothing_is_told():
    name = "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float>"
    assert kernel_of(name)["work_from"] is None
