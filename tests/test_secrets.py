"""What looks like a secret is found, never shown; what code looks like isn't taken for one."""

from dataclasses import replace

import pytest

from tracekit import secret_scan
from tracekit.messages.recordings import SECRET_FOUND
from tracekit.testing import TraceBuilder

# Put together here, so that scanners of this repository find nothing.
FAKE = {
    "an AWS access key": "AKIA" + "IOSFODNN7EXAMPLE",
    "a GitHub token": "ghp_" + "a1" * 18,
    "a GitLab token": "glpat-" + "a1" * 10,
    "a Hugging Face token": "hf_" + "aB" * 17,
    "an API key (sk-...)": "sk-" + "proj-" + "a1" * 12,
    "an NVIDIA API key": "nvapi-" + "a1" * 12,
    "a Slack token": "xoxb-" + "123456-abcdef",
    "a Google API key": "AIza" + "a" * 35,
    "a JSON web token": "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxMjM0In0" + ".abc",
    "a private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "a bearer token": "Authorization: Bearer " + "a1" * 10,
    "a password or key in an assignment": "PGPASSWORD=" + "hunter22!",
    "a URL with a password": "postgres://" + "bob:hunter2@db/jobs",
}

HARMLESS = (
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>(Params)",
    "num_tokens=4096",
    "max_token=4096",
    "token_embedding: Linear",
    "aten::embedding(Tensor weight, Tensor indices, int padding_idx=-1)",
    "task-scheduler-of-the-main-loop-0123456789",
    "s3://bucket/key",
    "vllm::rotary_embedding<token::Kind>(long const*)",
)


@pytest.mark.parametrize("kind", FAKE)
def test_known_formats(kind):
    found = secret_scan.find_secrets({"there": ["nothing", f"x {FAKE[kind]} y"]})
    assert secret_scan.FoundSecret(kind, "there") in found
    assert FAKE[kind] not in repr(found)


@pytest.mark.parametrize("kind", FAKE)
def test_every_kind_is_found_in_a_trace(kind):
    builder = TraceBuilder().op(f"x {FAKE[kind]} y", 0, 30).kernel("k", 20, 100, launch=10)
    found = secret_scan.build_secret_warnings(builder.load().ranks[0])
    assert kind in {message.values["kind"] for message in found}


def test_every_pattern_is_tested():
    assert set(FAKE) == set(secret_scan.SECRET_PATTERNS)


@pytest.mark.parametrize("text", HARMLESS)
def test_code_is_no_secret(text):
    assert secret_scan.find_secrets({"there": [text]}) == []


def test_warnings_look_everywhere_in_a_rank():
    token, key = FAKE["a GitHub token"], FAKE["an AWS access key"]
    builder = TraceBuilder().op("aten::mm", 0, 30, concrete=["", token]).annotation(f"upload {token}", 0, 5)
    rank = builder.kernel("k", 20, 100, launch=10).load().ranks[0]
    rank = replace(rank, metadata={"env": {"AWS_ID": key, "DB_PASSWORD": "correct-horse-battery"}})
    found = list(secret_scan.build_secret_warnings(rank))
    assert len(found) == 3
    assert SECRET_FOUND(kind="a GitHub token", locations=["op inputs", "annotations"]) in found
    assert not any(secret in str(warning) for warning in found for secret in (token, key, "horse"))


def test_no_secrets_no_warnings():
    trace = TraceBuilder().op("aten::mm", 0, 30).kernel("ampere_sgemm", 20, 100, launch=10).load()
    assert list(secret_scan.build_secret_warnings(trace.ranks[0])) == []
