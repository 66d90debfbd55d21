"""What the doctor tells users of a serving engine, who call no profiler themselves."""

import pytest

from tracekit.doctor import Diagnosis, examine
from tracekit.doctor.model import Check, Status
from tracekit.doctor.recipe import CHAKRA, SCHEDULE, SYNCS, translate_check
from tracekit.doctor.recipe import VLLM as VLLM_RECORDER
from tracekit.messages.doctor_checks import RECORD_BATCHES
from tracekit.render.screens import as_json
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

VLLM, SGLANG = "execute_context_0(0)_generation_8(8)", "step[DECODE bs=8]"


def serve(mark: str, **metadata: object) -> Diagnosis:
    """One batch of the engine, most of which the GPU is idle."""
    builder = TraceBuilder().annotation(mark, 0, 900).op("aten::mm", 1, 20)
    builder.kernel("gemm", 100, 200, launch=10).call("cudaGraphLaunch", 400, 5)
    builder.metadata.update(metadata)
    trace = builder.load()
    return examine(trace, prepare_run(trace))


@pytest.mark.parametrize(
    ("mark", "stacks", "command"),
    [
        (VLLM, "torch_profiler_with_stack: false", "vllm serve"),
        (SGLANG, "with_stack: false", "SGLANG_TORCH_PROFILER_DIR"),
    ],
)
def test_advice_is_in_the_words_of_the_engine(mark: str, stacks: str, command: str):
    diagnosis = serve(mark, with_stack=1)
    checks = {check.name: check for check in diagnosis.checks}
    assert checks["overhead"].option == stacks
    assert checks["steps"].fix is not None
    assert checks["steps"].fix.code == "record-batches"
    assert command in diagnosis.snippet
    assert max(map(len, diagnosis.snippet.splitlines())) <= 78


@pytest.mark.parametrize("mark", [VLLM, SGLANG])
def test_nothing_tells_an_engines_user_to_call_the_profiler(mark: str):
    told = as_json(serve(mark, with_stack=1, record_shapes=0))
    assert "profiler.step()" not in told
    assert "schedule(" not in told
    assert "ProfilerActivity" not in told


def test_other_jobs_get_python_code():
    builder = TraceBuilder().op("aten::mm", 1, 20).kernel("gemm", 100, 200, launch=10)
    trace = builder.load()
    diagnosis = examine(trace, prepare_run(trace))
    assert "profiler.step()" in diagnosis.snippet


def test_only_the_schedule_is_translated_into_batches():
    of_batches = translate_check(make_check(SCHEDULE), VLLM_RECORDER)
    assert (of_batches.fix.code, of_batches.option) == ("record-batches", "")
    assert translate_check(make_check(SYNCS), VLLM_RECORDER).fix is None
    assert translate_check(make_check(SCHEDULE), CHAKRA).fix is None


def make_check(option: str) -> Check:
    return Check("steps", "Steps", Status.FAIL, RECORD_BATCHES(), option=option)
