"""Files of torchtitan jobs, as options of a request."""

from pathlib import Path
from typing import Any

import pytest

from tests.codes import has_code
from tracekit.capturing.options import is_program
from tracekit.capturing.torchtitan import read_training_file
from tracekit.errors import RequestError
from tracekit.request import PredictRequest
from tracekit.request.program_options import ProgramOptions

MODEL = '[model]\nname = "llama3"\nflavor = "8B"\n'
EAGER = '[activation_checkpoint]\nmode = "none"\n'


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Return a function that writes a job's file."""

    def write_file(text: str) -> str:
        path = tmp_path / "train.toml"
        path.write_text(text)
        return str(path)

    return write_file


def build_all(name: str) -> tuple[Any, ...]:
    """Build all that a file tells of a job on eight GPUs."""
    file = read_training_file(name)
    return file.model, file.build_program_options(), file.build_layout(8, {})


def test_a_jobs_file_is_a_program_and_others_are_none(write: Any) -> None:
    assert is_program([write(MODEL)])
    assert not is_program([write('[tool.ruff]\nline-length = 120\n[model]\nname = "x"\n')])


def test_options_of_the_program_follow_from_the_file(write: Any) -> None:
    text = '[training]\nseq_len = 8192\n[compile]\nenable = true\n[float8]\nrecipe_name = "rowwise"\n'
    file = read_training_file(write(MODEL + 'converters = ["float8"]\n' + text + EAGER))
    assert file.build_program_options() == {
        "train": True,
        "seq": 8192,
        "optimizer": "fused-adamw",
        "compile": True,
        "precision": "fp8_rowwise",
        "stack": "torchtitan",
    }
    assert read_training_file(write(MODEL)).build_program_options()["recompute"] == "selective"


@pytest.mark.parametrize(
    ("text", "gpus", "layout"),
    [
        ("", 8, {"dp": 8, "fsdp": True, "batch": 8.0}),
        ("", None, {"batch": 8.0}),
        (
            "tensor_parallel_degree = 4\n[training]\nlocal_batch_size = 2\nglobal_batch_size = 64\n",
            32,
            {"dp": 8, "fsdp": True, "tp": 4, "sequence_parallel": True, "micro_batches": 4, "batch": 2.0},
        ),
        (
            'pipeline_parallel_degree = 2\npipeline_parallel_schedule = "Interleaved1F1B"\n',
            2,
            {"pp": 2, "pp_schedule": "interleaved", "micro_batches": 8, "batch": 1.0},
        ),
        (
            "context_parallel_degree = 4\ntensor_parallel_degree = 2\n",
            16,
            {"dp": 2, "fsdp": True, "cp": 4, "tp": 2, "sequence_parallel": True, "batch": 8.0},
        ),
        ("data_parallel_replicate_degree = 4\ndata_parallel_shard_degree = 1\n", 4, {"dp": 4, "batch": 8.0}),
    ],
)
def test_the_layout_is_the_jobs_degrees(write: Any, text: str, gpus: int | None, layout: dict[str, Any]) -> None:
    """Of 32 GPUs 4 share a layer; 64 samples are 8 replicas' 2 in 4 rounds. Stages get one sample at a time.

    Of 16 GPUs 4 split each sequence, and 2 a layer.
    """
    assert read_training_file(write(MODEL + "[parallelism]\n" + text)).build_layout(gpus, {}) == layout


def test_what_is_asked_for_wins_over_the_file(write: Any) -> None:
    name = write(MODEL + "[training]\nseq_len = 8192\n" + EAGER)
    assert ProgramOptions(train=True, seq=128).join_training_file(name).seq == 128
    program, asked = ProgramOptions().join_job(name, PredictRequest(cluster="8xh100-sxm", dp=2, tp=4))
    assert (asked.dp, asked.tp, asked.fsdp, asked.batch) == (2, 4, True, 8.0)
    assert (program.seq, program.micro_batches) == (8192, None)


def test_context_parallel_ranks_pass_to_the_layout(write: Any) -> None:
    name = write(MODEL + "[parallelism]\ncontext_parallel_degree = 8\n" + EAGER)
    _, asked = ProgramOptions().join_job(name, PredictRequest(cluster="8xh100-sxm"))
    assert (asked.cp, asked.dp, asked.layout.cp) == (8, None, 8)


def test_a_global_batch_is_accumulated(write: Any) -> None:
    """Of 128 samples each of eight replicas has 16, eight at once."""
    name = write(MODEL + "[training]\nglobal_batch_size = 128\n" + EAGER)
    program, asked = ProgramOptions().join_job(name, PredictRequest(cluster="8xh100-sxm"))
    assert (program.micro_batches, asked.batch, asked.dp) == (2, 8.0, 8)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (MODEL.replace("llama3", "flux"), "torchtitan-model-unknown"),
        (MODEL.replace("8B", "9B"), "torchtitan-flavour-unknown"),
        (MODEL + "[parallelism]\ntensor_parallel_degree = 3\n", "torchtitan-ranks"),
        (MODEL + '[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "GPipe"\n',
         "torchtitan-value"),
        (MODEL + '[activation_checkpoint]\nmode = "often"\n', "torchtitan-value"),
        (MODEL + "[training\n", "program-unreadable"),
    ],
)  # fmt: skip
def test_what_no_option_says_is_refused(write: Any, text: str, code: str) -> None:
    name = write(text)
    with pytest.raises(RequestError, check=has_code(code)):
        build_all(name)


def test_what_changes_little_is_listed(write: Any) -> None:
    text = "[parallelism]\nenable_async_tensor_parallel = true\n[float8]\nenable_fsdp_float8_all_gather = true\n"
    found = read_training_file(write(MODEL + text)).left_out
    assert found == ("parallelism.enable_async_tensor_parallel", "float8.enable_fsdp_float8_all_gather")


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("model", "flavour", "billions"),
    [
        ("llama3", "8B", 8.03), ("llama3", "405B_flex", 405.9), ("qwen3", "30B-A3B", 30.5), ("qwen3", "0.6B", 0.596),
        ("deepseek_v3", "16B", 15.7), ("deepseek_v3", "671B", 671.0), ("gpt_oss", "20b", 20.9),
        ("llama4", "17bx16e", 107.8),
    ],
)  # fmt: skip
def test_flavours_have_their_models_parameters(write: Any, model: str, flavour: str, billions: float) -> None:
    """As their publishers tell; Llama 4's without its 0.9 billion for images."""
    pytest.importorskip("transformers")
    from tracekit.capturing.load import load_program

    name = write(MODEL.replace("llama3", model).replace("8B", flavour))
    given = load_program(name, batch=1, tokens=64, dtype="bf16", training=False)
    assert sum(one.numel() for one in given.model.parameters()) / 1e9 == pytest.approx(billions, rel=0.005)


def test_shards_are_what_the_degrees_asked_for_leave(write):
    file = read_training_file(write(MODEL + "[parallelism]\ntensor_parallel_degree = 2\n"))
    assert file.build_layout(64, {"tp": 8})["dp"] == 8
    assert file.build_layout(64, {"tp": 1, "pp": 4})["dp"] == 16
