"""Every figure that a finding states, worked out by hand over two steps of different length; times in microseconds.

Two steps make what is of a mean step differ from what is of the trace, and evidence differ from its longest call.
"""

import polars as pl
import pytest

import predictors
import tracekit as tk
from tests.jobs import gradient_step, job, recorded
from tests.report.test_findings import BF16, TENSOR, Timeline, found, mm
from tracekit.messages.findings import CALL_MADE, CHAIN_RAN, GEMM_LAUNCHED, OP_LAUNCHED, RANK_BUSY_AND_WAITING, SPAN_RAN
from tracekit.reporting.findings.context import Finding
from tracekit.testing import TraceBuilder


class TwoSteps(Timeline):
    """Two marked steps behind one that is left out; what is added after ``then`` is in the second."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.begun = [0.0]
        self.run("aten::mm", TENSOR, 7, mm(64, 64, 64)).then()

    def then(self) -> "TwoSteps":
        """Wait for the GPU and begin the next step."""
        self.call("cudaDeviceSynchronize", self.cpu, self.gpu + 3 - self.cpu)
        self.cpu = self.gpu + 5
        self.begun.append(self.cpu)
        return self

    def find(self, code: str) -> Finding:
        self.call("cudaDeviceSynchronize", self.cpu, self.gpu + 3 - self.cpu)
        end = self.gpu + 5
        for number, (begin, until) in enumerate(zip(self.begun, [*self.begun[1:], end], strict=True)):
            self.step(number, begin, until - begin - 0.5)
        (finding,) = (one for one in tk.report(self.load(), steps="1:2").findings if one.code == code)
        return finding


def shown(finding: Finding) -> list[tuple[object, ...]]:
    return [(row.what, row.time_us, row.detail) for row in finding.evidence]


def on_host(first: list[float], second: list[float], add) -> TwoSteps:
    """Steps on whose thread some calls of given lengths come before a product of 100."""
    steps = TwoSteps()
    for number, lengths in enumerate((first, second)):
        if number:
            steps.then()
        for length in lengths:
            add(steps, steps.cpu, length)
            steps.cpu += length + 5
        steps.gpu = max(steps.gpu, steps.cpu)
        steps.run("aten::mm", TENSOR, 100, mm(1024, 1024, 1024))
    return steps


def test_allocator():
    """300 and 200 in the first step, 100 in the second: 300 of a mean step, in 1.5 calls."""
    finding = on_host([300, 200], [100], lambda steps, at, dur: steps.call("cudaMalloc", at, dur)).find("allocator")
    assert finding.message.values == {"calls_us": 300}
    assert shown(finding) == [("cudaMalloc", 300, CALL_MADE(calls=1.5))]


def test_data_loading():
    """400 in the first, 300 and 100 in the second, by one loader: 400 of a mean step, 1.5 times."""
    loader = "enumerate(DataLoader)#_Loader.__next__"
    finding = on_host([400], [300, 100], lambda steps, at, dur: steps.annotation(loader, at, dur)).find("data-loading")
    assert finding.message.values == {"loading_us": 400}
    assert shown(finding) == [(loader, 400, SPAN_RAN(times=1.5))]


def test_full_precision():
    slow = "ampere_sgemm_128x128_nn"
    steps = TwoSteps().run("aten::mm", slow, 9000, mm(4096, 4096, 4096), "float")
    steps.run("aten::mm", slow, 3000, mm(2048, 2048, 4096), "float")
    finding = steps.then().run("aten::mm", slow, 10_000, mm(4096, 4096, 4096), "float").find("full-precision")
    assert finding.message.values == {"gemms_us": (9000 + 3000 + 10_000) / 2}
    assert shown(finding) == [
        ("aten::mm fp32 4096×4096, 4096×4096", 9500, OP_LAUNCHED(launches=1.0)),
        ("aten::mm fp32 2048×4096, 4096×2048", 1500, OP_LAUNCHED(launches=0.5)),
    ]


def test_misaligned_shapes():
    steps = TwoSteps().run("aten::mm", "cutlass_bf16_align1", 4000, mm(4096, 4095, 4096))
    finding = steps.then().run("aten::mm", "cutlass_bf16_align1", 5000, mm(4096, 4095, 4096)).find("misaligned-shapes")
    assert finding.message.values == {"alignment": 8, "gemms_us": 4500}
    assert [row.detail for row in finding.evidence] == [GEMM_LAUNCHED(launches=1.0, m=4096, n=4095, k=4096)]


def test_tensor_cores_unused():
    simt = "cutlass_80_simt_sgemm_128x128"
    steps = TwoSteps().run("aten::mm", simt, 9000, mm(4096, 4096, 4096)).run("aten::mm", TENSOR, 900, mm(64, 64, 64))
    finding = steps.then().run("aten::mm", simt, 7000, mm(4096, 4096, 4096)).find("tensor-cores-unused")
    assert finding.message.values == {"gemms_us": 8000}


def test_low_utilization():
    """The bound is the same in both steps, of 100 and of 140."""
    shape = mm(64, 64, 16384)
    finding = TwoSteps().run("aten::mm", TENSOR, 100, shape).then().run("aten::mm", TENSOR, 140, shape)
    low = finding.find("low-utilization")
    product = pl.DataFrame({"family": ["gemm"], "dtype": ["bf16"], "m": [64], "n": [64], "k": [16384]})
    bound_us = predictors.predict(product, predictors.load_gpu("a100-sxm-80gb"))["bound_us"].item()
    assert low.message.values["kernels_us"] == 120
    assert low.message.values["reached_pct"] == pytest.approx(100 * bound_us / 120)


def test_unfused_chains():
    """A chain of two in both steps, and another of three in the second: 3.5 kernels of a mean step."""
    name, shape = "void vectorized_elementwise_kernel", [[4096, 4096]]
    steps = TwoSteps()
    for op, dur in (("aten::mul", 100), ("aten::add", 120)):
        steps.run(op, name, dur, shape)
    steps.then()
    for op, dur in (("aten::mul", 110), ("aten::add", 120)):
        steps.run(op, name, dur, shape)
    steps.run("aten::mm", TENSOR, 50, mm(1024, 1024, 1024))
    for op in ("aten::exp", "aten::neg", "aten::log"):
        steps.run(op, name, 90, [[2048, 8192]])
    finding = steps.find("unfused-chains")
    assert finding.message.values == {"kernels": 3.5, "kernels_us": (220 + 230 + 270) / 2}
    assert shown(finding) == [
        ("aten::mul → aten::add", 225, CHAIN_RAN(times=1.0)),
        ("aten::exp → aten::neg → aten::log", 135, CHAIN_RAN(times=0.5)),
    ]
    assert finding.saves_us == pytest.approx((100 + 110 + 180) / 2, rel=0.1)


def test_unfused_optimizer():
    ops = ("_foreach_mul_", "_foreach_addcmul_", "_foreach_sqrt", "_foreach_div_", "_foreach_add_", "_foreach_addcdiv_")
    steps = TwoSteps()
    for dur in (200, 220):
        if dur == 220:
            steps.then()
        for op in ops:
            steps.run(f"aten::{op}", "void multi_tensor_apply_kernel", dur, [[[1024, 8192]] * 3], "TensorList")
    assert steps.find("unfused-optimizer").message.values == {"kernels_us": 6 * 210, "kernels": 6}


def test_pageable_copies():
    steps = TwoSteps()
    for dur in (4000, 4400):
        if dur == 4400:
            steps.then()
        steps.run(
            "aten::copy_", "Memcpy HtoD (Pageable -> Device)", dur, [[4096, 1024]], kind="gpu_memcpy", bytes=16 << 20
        )
    assert steps.find("pageable-copies").message.values == {"copies_us": 4200}


def collective(steps: TwoSteps, dur: float, elements: int = 10_000_000) -> None:
    args = recorded(nelems=elements, ranks="[0, 1, 2, 3]")
    steps.kernel("ncclDevKernel_AllReduce", steps.gpu + 1, dur, launch=steps.cpu, stream=9, **args)
    steps.cpu, steps.gpu = steps.cpu + 8, steps.gpu + 1 + dur


def test_exposed_communication():
    """Alone for 300 and 340; each step is that, a product of 900 and some latency."""
    steps = TwoSteps().run("aten::mm", TENSOR, 900, mm(4096, 4096, 4096))
    collective(steps, 300)
    steps.then().run("aten::mm", TENSOR, 900, mm(4096, 4096, 4096))
    collective(steps, 340)
    values = steps.find("exposed-communication").message.values
    assert values["exposed_us"] == 320
    assert values["exposed_pct"] == pytest.approx(100 * 320 / (900 + 320 + 30), abs=0.5)


@pytest.mark.parametrize(("elements", "counted"), [(2**18 - 1, True), (2**18, False)])
def test_small_collectives(elements, counted):
    """Of 4 bytes each, under and at 1 MiB; four of 30 in the first step and six in the second."""
    steps = TwoSteps().run("aten::mm", TENSOR, 100, mm(1024, 1024, 1024))
    for _ in range(4):
        collective(steps, 30, elements)
    steps.then().run("aten::mm", TENSOR, 100, mm(1024, 1024, 1024))
    for _ in range(6):
        collective(steps, 30, elements)
    if not counted:
        with pytest.raises(ValueError, match="not enough values"):
            steps.find("small-collectives")
        return
    finding = steps.find("small-collectives")
    assert finding.message.values == {"collectives": 5, "collectives_us": 5 * 30}
    assert finding.saves_us == pytest.approx((3 * 30 + 5 * 30) / 2, rel=0.1)


@pytest.mark.parametrize(("product_us", "reported"), [(5_000, True), (50_000, False)])
def test_small_collectives_are_worth_a_hundredth_of_the_step(product_us, reported):
    """Four of 30 that become one save 90: of a step of some 5,120, and of one of some 50,120."""
    steps = TwoSteps()
    for number in range(2):
        if number:
            steps.then()
        steps.run("aten::mm", TENSOR, product_us, mm(4096, 4096, 4096))
        for _ in range(4):
            collective(steps, 30, 1000)
    if reported:
        assert steps.find("small-collectives").saves_us == pytest.approx(90, rel=0.1)
    else:
        with pytest.raises(ValueError, match="not enough values"):
            steps.find("small-collectives")


def test_straggler():
    """Rank 1 comes 100 late to the only all-reduce, which takes 38: the other waits as long."""
    late = {one.code: one for one in tk.report(job(gradient_step(100, 250), gradient_step(200, 250))).findings}
    finding = late["straggler"]
    assert finding.message.values == {"rank": 1, "last_pct": 100}
    assert shown(finding) == [
        ("rank 1", 100, RANK_BUSY_AND_WAITING(busy_us=238, wait_us=0)),
        ("rank 0", 0, RANK_BUSY_AND_WAITING(busy_us=138, wait_us=100)),
    ]


def test_warm_up():
    """300 and 320 after 900: the others' median is 310. The trace's first step is left out."""
    builder, now = TraceBuilder(), 0.0
    for number, dur in enumerate((400, 900, 300, 320, 310), 2):
        builder.step(number, now, dur).op("aten::add", now + 5, 20).kernel("add", now + 15, dur / 2, launch=now + 7)
        now += dur
    values = found(builder)["warm-up"].message.values
    assert (values["step"], values["first"], values["last"]) == (3, 4, 6)
    assert values["step_us"] == pytest.approx(900, abs=5)
    assert values["median_us"] == pytest.approx(310, abs=5)


def test_graph_breaks():
    builder = TraceBuilder()
    for number, count in ((0, 9), (1, 2), (2, 5)):
        begin = 1000.0 * number
        builder.step(number, begin, 990)
        for i in range(count):
            builder.op(f"Torch-Compiled Region: {i}/0", begin + 100 * i, 80)
            builder.kernel("triton_poi_fused_add_0", begin + 100 * i + 30, 20, launch=begin + 100 * i + 10)
    (finding,) = (one for one in tk.report(builder.load(), steps="1:2").findings if one.code == "graph-breaks")
    assert finding.message.values == {"regions": 3.5}
    assert shown(finding)[0] == ("Torch-Compiled Region: 0/0", 80, SPAN_RAN(times=1.0))
    assert shown(finding)[-1] == ("Torch-Compiled Region: 4/0", 40, SPAN_RAN(times=0.5))


def test_memory_and_bounds():
    """Of one product in 100 where 440 are needed at least."""
    trace = Timeline().run("aten::mm", TENSOR, 100, mm(4096, 4096, 4096)).run("aten::exp", "exp", 300, [[64]], BF16)
    values = trace.found()["faster-than-bound"].message.values
    assert values == {"kernels": 1, "time_pct": 25, "families": ("gemm",)}
