"""The command ``serving``."""

import csv
import json
from xml.etree import ElementTree

import pytest

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
SHORT = ("--input-tokens", 256, "--output-tokens", 32, "--requests", 40)


@pytest.fixture
def config(tmp_path):
    """The sizes of Llama 3.1 8B."""
    return write(tmp_path, CONFIG)


def write(folder, sizes):
    """Write a config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(sizes))
    return path


def test_a_load_on_two_gpus(config, run):
    code, out, err = run(
        "serving", config, "--gpu", "t4", "--gpu", "h100-sxm", "--gpu", "l40s", "--concurrency", 4, *SHORT,
        "--price", "h100-sxm=3.6", "--json",
    )  # fmt: skip
    assert code == 0, err
    fast, slow = json.loads(out)["targets"]
    # The weights exceed the memory of a T4.
    assert [one["values"]["gpus"] for one in fast["notes"] if one["code"] == "serving-left-out"] == [["t4"]]
    (load,) = fast["loads"]
    for figure in (load["ttft_ms"], load["tpot_ms"], load["tokens_per_s"], load["e2e_p99_ms"], load["itl_p50_ms"]):
        assert 0 < figure["low"] <= figure["likely"] <= figure["high"]
    assert load["tpot_ms"]["likely"] < slow["loads"][0]["tpot_ms"]["likely"]
    # 3.60 dollars an hour are a tenth of a cent a second
    assert load["dollars_per_million_tokens"]["likely"] == pytest.approx(1000 / load["tokens_per_s"]["likely"])
    assert [one["concurrency"] for one in fast["curve"]][:4] == [1, 2, 4, 8]
    rates = [one["tokens_per_s_per_gpu"] for one in fast["curve"]]
    assert rates == sorted(rates)
    assert fast["memory"]["weight_bytes"] == pytest.approx(16.06e9, rel=0.001)  # 8.03 billion parameters


@pytest.mark.heavy
def test_the_largest_load_meets_the_limits(config, run):
    code, out, err = run("serving", config, "-g", "h100-sxm", *SHORT, "--tpot-below", "10ms", "--json")
    assert code == 0, err
    largest = json.loads(out)["targets"][0]["largest"]
    assert largest["figures"]["tpot_p95_ms"]["likely"] <= 10
    assert largest["load"]["low"] <= largest["load"]["likely"] <= largest["load"]["high"]
    tight = run("serving", config, "-g", "h100-sxm", *SHORT, "--tpot-below", "1ms", "--json")[1]
    assert json.loads(tight)["targets"][0]["largest"] == {
        "load": {"likely": 0.0, "low": 0.0, "high": 0.0},
        "figures": None,
    }


@pytest.mark.heavy
def test_engines_apart_decode_undisturbed(config, run):
    # Long prompts: short ones hardly lengthen a step that decodes beside them.
    long = ("--input-tokens", 4000, "--output-tokens", 50, "--requests", 40)
    given = ("serving", config, "-g", "h100-sxm", "--rate", 4, *long, "--json")
    together, apart = (json.loads(run(*given, *more)[1])["targets"][0] for more in ((), ("--apart", "1:1")))
    assert (together["gpus"], apart["gpus"]) == (1, 2)
    assert apart["loads"][0]["itl_p99_ms"]["likely"] < together["loads"][0]["itl_p99_ms"]["likely"]


def test_forms(config, run, tmp_path):
    outputs = [tmp_path / f"served{suffix}" for suffix in (".svg", ".html", ".csv", ".json", ".txt")]
    flags = [word for path in outputs for word in ("-o", path)]
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("input,output\n100,20\n300,40\n")
    code, out, err = run("serving", config, "-g", "h100-sxm", "--concurrency", 2, "--lengths", lengths, "-q", *flags)
    assert code == 0, err
    assert "throughput over latency" in out
    assert "h100-sxm" in "".join(ElementTree.fromstring(outputs[0].read_text()).itertext())
    assert "<svg" in outputs[1].read_text()
    rows = list(csv.DictReader(outputs[2].read_text().splitlines()))
    assert [rows[0]["kind"], rows[1]["kind"]] == ["load", "curve"]
    assert outputs[4].read_text().startswith("h100-sxm")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--rate", 3, "--concurrency", 2), "Give --concurrency or --rate"),
        (("--apart", "1:2", "--concurrency", 2), "Give --rate instead"),
        (("--rate", 3, "--apart", "two"), "such as 2:6"),
        (("--draft-tokens", 2), "--accepted-tokens"),
        (("--precision", "int3"), "Known are bf16"),
        (("--framework", "ollama"), "ollama"),
        (("--lengths", "missing.csv"), "No such file"),
        (("--percentile", 42), "Give one of 50, 90, 95, 99"),
        (("--tp", 4, "--cluster", "2xh100-sxm"), "needs 4"),
        (("--input-tokens", 2_000_000), "requests of at most"),
    ],
)
def test_what_is_refused(config, run, options, expected):
    code, out, err = run("serving", config, *(() if "--cluster" in options else ("-g", "h100-sxm")), *options)
    assert (code, out) == (1 if "--input-tokens" in options else 2, "")
    assert expected in err
    assert len(err.splitlines()) == 1


def test_a_model_that_does_not_fit_is_told_what_would(run, tmp_path):
    path = write(tmp_path, CONFIG | {"num_hidden_layers": 160})
    code, _, err = run("serving", path, "-g", "l40s")
    assert code == 1
    assert "Would fit: --tp 2, --precision fp8." in err
    experts = {"model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 2, "moe_intermediate_size": 4096}
    path = write(tmp_path, CONFIG | experts | {"num_hidden_layers": 160})
    code, _, err = run("serving", path, "-g", "h100-sxm", "--tp", 8)
    assert code == 1
    # Three matrices of 4,096 x 4,096 for 128 experts in 160 layers: 2.06 TB over 32 GPUs, or 0.55 TB over 8.
    assert "Would fit: --ep 32, --precision int4." in err


def test_experts_are_shared_by_groups(run, tmp_path):
    """Of 8 GPUs, groups of 2 have the load's requests each; a GPU holds an eighth of the experts, half of the rest."""
    experts = {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1024}
    path = write(tmp_path, CONFIG | experts)
    code, out, err = run("serving", path, "-g", "h100-sxm", "--tp", 2, "--ep", 8, "--concurrency", 8, "--json")
    assert code == 0, err
    (target,) = json.loads(out)["targets"]
    assert target["gpus"] == 8
    code, _, err = run("serving", path, "-g", "h100-sxm", "--tp", 4, "--ep", 2)
    assert (code, len(err.splitlines())) == (1, 1)
    assert "Take --ep as large as --tp, or a multiple" in err


@pytest.mark.heavy
def test_linear_attention_is_served(run, tmp_path):
    linear = {"full_attention_interval": 2, "linear_conv_kernel_dim": 4}
    linear |= {f"linear_num_{kind}_heads": 4 for kind in ("key", "value")}
    linear |= {f"linear_{kind}_head_dim": 64 for kind in ("key", "value")}
    answers = []
    for config in (CONFIG, CONFIG | linear):
        code, out, err = run("serving", write(tmp_path, config), "-g", "h100-sxm", "--json")
        assert code == 0, err
        answers.append(json.loads(out)["targets"][0])
    attention, mixed = answers
    # Every second layer keeps a state of 4 x 64 x 64 numbers for each sequence, and no keys.
    assert mixed["memory"]["token_bytes"] == attention["memory"]["token_bytes"] / 2


def test_fp8_weights_of_the_config_are_read(run, tmp_path):
    path = write(tmp_path, CONFIG | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})
    code, out, err = run("serving", path, "-g", "h100-sxm", "--json")
    assert code == 0, err
    assert json.loads(out)["targets"][0]["memory"]["weight_bytes"] == pytest.approx(9.08e9, rel=0.001)
    path = write(tmp_path, CONFIG | {"quantization_config": {"quant_method": "gptq"}})
    assert "'gptq' is no precision" in run("serving", path, "-g", "h100-sxm")[2]


@pytest.mark.heavy
def test_stages_have_half_of_the_weights_and_of_the_requests_each(config, run):
    asked = ("serving", config, "-g", "h100-sxm", "--concurrency", 8, *SHORT, "--json")
    one, two = (json.loads(run(*asked, "--pp", stages)[1])["targets"][0] for stages in (1, 2))
    assert (one["gpus"], two["gpus"]) == (1, 2)
    assert two["memory"]["weight_bytes"] == one["memory"]["weight_bytes"] / 2
    # A token passes both stages; of two batches each has fewer sequences to read the cache of.
    faster, slower = (each["loads"][0]["tpot_ms"]["likely"] for each in (two, one))
    assert 0.9 * slower < faster < 1.1 * slower
    code, _, err = run(*asked, "--pp", 33)
    assert code == 1
    assert "32 layers" in err
