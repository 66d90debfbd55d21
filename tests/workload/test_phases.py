"""Forward, backward and optimizer: told by what encloses a launch, else by the kernel's own op or name."""

import pytest

from tracekit import report
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

AUTOGRAD_THREAD = 101


def phases(builder: TraceBuilder) -> dict[str, str]:
    return dict(build_kernel_table(builder.load().rank()).select("name", "phase").iter_rows())


def test_a_training_step():
    builder = (
        TraceBuilder()
        .op("aten::mm", 0, 10)
        .kernel("forward", 20, 5, launch=2)
        .op("autograd::engine::evaluate_function: MmBackward0", 20, 30, thread=AUTOGRAD_THREAD)
        .op("MmBackward0", 21, 20, thread=AUTOGRAD_THREAD)
        .op("aten::mm", 22, 10, thread=AUTOGRAD_THREAD)
        .kernel("gradient", 50, 5, launch=24, thread=AUTOGRAD_THREAD)
        .op("torch::autograd::AccumulateGrad", 42, 6, thread=AUTOGRAD_THREAD)
        .kernel("accumulate", 60, 5, launch=44, thread=AUTOGRAD_THREAD)
        .annotation("Optimizer.step#SGD.step", 60, 30)
        .op("aten::_foreach_add_", 62, 10)
        .kernel("update", 80, 5, launch=65)
    )
    assert phases(builder) == {
        "forward": "forward", "gradient": "backward", "accumulate": "backward", "update": "optimizer",
    }  # fmt: skip


def test_what_only_ran_during_the_backward_pass_is_not_part_of_it():
    builder = (
        TraceBuilder()
        .op("autograd::engine::evaluate_function: MmBackward0", 20, 30, thread=AUTOGRAD_THREAD)
        .op("aten::mm", 20, 30)
        .kernel("of the main thread", 60, 5, launch=30)
    )
    assert phases(builder) == {"of the main thread": "forward"}


def test_an_optimizer_that_steps_inside_the_backward_pass():
    builder = (
        TraceBuilder()
        .op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 0, 30, thread=AUTOGRAD_THREAD)
        .op("aten::_fused_adamw_", 5, 20, thread=AUTOGRAD_THREAD)
        .kernel("update", 40, 5, launch=10, thread=AUTOGRAD_THREAD)
    )
    assert phases(builder) == {"update": "optimizer"}


@pytest.mark.parametrize(
    ("mark", "phase"), [("## backward ##", "backward"), ("zero_grad", "optimizer"), ("step 3", "forward")]
)
def test_ranges_that_people_write(mark, phase):
    assert phases(TraceBuilder().annotation(mark, 0, 50).kernel("k", 60, 5, launch=10)) == {"k": phase}


@pytest.mark.parametrize(
    ("kernel", "phase"),
    [
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "forward"),
        ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 64, 128>>", "backward"),
        ("sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32", "backward"),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>>",
            "optimizer",
        ),
    ],
)
def test_kernels_that_nothing_launched_in_the_trace_go_by_their_names(kernel, phase):
    assert phases(TraceBuilder().kernel(kernel, 0, 5).kernel("new", 60, 5, launch=50))[kernel] == phase


def test_a_transposed_convolution_is_forward_though_its_kernel_is_anothers_gradient():
    kernel = "sm80_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32"
    builder = TraceBuilder().op("aten::cudnn_convolution_transpose", 0, 20).kernel(kernel, 30, 50, launch=10)
    assert phases(builder) == {kernel: "forward"}


def test_inference_is_all_forward():
    assert phases(TraceBuilder().op("aten::mm", 0, 10).kernel("k", 20, 5, launch=2)) == {"k": "forward"}


def test_a_step_of_which_little_is_known_is_not_split_by_phase():
    builder = (
        TraceBuilder().kernel("extension", 50, 200, launch=2).op("aten::mm", 260, 10).kernel("k", 270, 50, launch=262)
    )
    builder.op("autograd::engine::evaluate_function: MmBackward0", 330, 20).kernel("b", 345, 100, launch=335)
    assert report(builder.load()).phases == ()
    known = TraceBuilder().op("aten::mm", 0, 10).kernel("k", 20, 300, launch=2)
    known.op("autograd::engine::evaluate_function: MmBackward0", 330, 20).kernel("b", 345, 100, launch=335)
    assert [part.phase for part in report(known.load()).phases] == ["forward", "backward"]
