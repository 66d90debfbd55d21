"""Numbers and names as people read them."""

import pytest

from tracekit.units import kernel_title

LAMBDA = "at::native::gpu_kernel_impl<at::native::AddFunctor<float> >(at::TensorIteratorBase&)::{lambda(int)#1}"
TITLES = {
    "void at::native::(anonymous namespace)::CatArrayCopy<float, 2>(float*, int)": "CatArrayCopy<float, 2>",
    f"void at::native::elementwise_kernel<128, 2, {LAMBDA}>(int, {LAMBDA})": (
        "elementwise_kernel<128, 2, gpu_kernel_impl<AddFunctor<float> >(at::TensorIteratorBase&)::{lambda(int)#1}>"
    ),
    "void cutlass::device_kernel<ep::GemmKernel<2> >(ep::GemmKernel<2>::Params)": "ep::GemmKernel<2>",
    "ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)": "ncclDevKernel_SendRecv",
    "ampere_sgemm_32x128_nt": "ampere_sgemm_32x128_nt",
    "aten::mm": "aten::mm",
    "train.py(12): step": "train.py(12): step",
    "Memcpy HtoD (Pinned -> Device)": "Memcpy HtoD (Pinned -> Device)",
}


@pytest.mark.parametrize("name", TITLES)
def test_titles_of_kernels_say_what_they_do(name):
    assert kernel_title(name) == TITLES[name]
