"""A server's settings: what the documentation promises by default, what is refused, and what workers are told."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.codes import has_code
from tracekit.cli.app import app as cli
from tracekit.errors import TracekitError
from tracekit.ingest import parse_memory_size
from tracekit.web import server
from tracekit.web.settings import Settings, check_settings

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"
GIB = 1 << 30
TOKEN = "0123456789abcdef"


def read_documented_defaults() -> dict[str, str]:
    """The options' table in the documentation: option and default."""
    rows = re.findall(r"^\| `--([a-z-]+)` \| ([^|]+) \|", HOW_TO.read_text(), re.MULTILINE)
    return {option: default.strip() for option, default in rows}


def serve(monkeypatch: pytest.MonkeyPatch, *options: str) -> Settings:
    """The settings with which the command would serve."""
    begun: list[Settings] = []
    monkeypatch.setattr("tracekit.web.server.run_server", lambda settings, listening: begun.append(settings))
    CliRunner().invoke(cli, ["serve", "--data", "/somewhere", *options], catch_exceptions=False)
    return begun[0]


def test_the_documented_defaults_are_those_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    told, settings = read_documented_defaults(), serve(monkeypatch)
    assert settings == Settings(data=Path("/somewhere"))
    assert (settings.host, settings.port) == ("127.0.0.1", 8321)
    assert settings.workers == int(told["workers"])
    assert settings.time_limit_s == int(told["time-limit"])
    assert settings.keep_s == int(told["keep"]) * 24 * 60 * 60
    for option, most_bytes in (
        ("max-upload", settings.max_upload_bytes),
        ("max-unpacked", settings.max_unpacked_bytes),
        ("max-stored", settings.max_stored_bytes),
    ):
        assert most_bytes == parse_memory_size(told[option])
    for option, most in (
        ("max-files", settings.max_files),
        ("engine-ranks", settings.engine_ranks),
        ("max-queued", settings.max_queued),
        ("max-jobs", settings.max_jobs_per_owner),
        ("rate", settings.max_per_minute),
    ):
        assert most == int(told[option]), option


def test_what_the_documentation_says_beside_the_options() -> None:
    """A claim of 30 s, 50 waiting jobs of an owner; uploads without a job stay a day, and disks keep 256 MiB."""
    text, settings = HOW_TO.read_text(), Settings(data=Path("/somewhere"))
    assert f"claimed for {settings.lease_s:.0f} s" in text
    assert settings.lease_s == 30
    assert f"{settings.max_queued_per_owner} of one owner" in text
    assert settings.keep_upload_s == 24 * 60 * 60
    assert settings.min_free_bytes == 256 << 20


def test_every_option_reaches_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "host": "0.0.0.0", "port": "1", "token": TOKEN, "database": "postgresql://h/d", "files": "memory://x",
        "workers": "2", "engine": "local", "engine-ranks": "3",
        "memory": "3G", "time-limit": "5", "keep": "0.5", "max-upload": "6G", "max-unpacked": "7G",
        "max-files": "8", "max-queued": "9", "max-jobs": "10", "max-stored": "11G", "rate": "12",
    }  # fmt: skip
    settings = serve(monkeypatch, *(text for name, value in given.items() for text in (f"--{name}", value)))
    assert settings == Settings(
        data=Path("/somewhere"),
        host="0.0.0.0",
        port=1,
        token=TOKEN,
        database="postgresql://h/d",
        files="memory://x",
        workers=2,
        engine="local",
        engine_ranks=3,
        memory_bytes=3 * GIB,
        time_limit_s=5,
        keep_s=43_200,
        max_upload_bytes=6 * GIB,
        max_unpacked_bytes=7 * GIB,
        max_files=8,
        max_queued=9,
        max_jobs_per_owner=10,
        max_stored_bytes=11 * GIB,
        max_per_minute=12,
    )


@pytest.mark.parametrize(
    ("workers", "memory_bytes", "each_bytes"),
    [(1, 0, 12 * GIB), (3, 0, 4 * GIB), (0, 0, 12 * GIB), (6, 0, 2 * GIB), (7, 0, 2 * GIB), (3, 5 * GIB, 5 * GIB)],
)
def test_workers_share_three_quarters_of_the_memory(
    workers: int, memory_bytes: int, each_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 16 GiB; none gets less than it needs to start."""
    monkeypatch.setattr("tracekit.web.settings.ingest.parse_memory_size", lambda _: 8 * GIB)
    settings = Settings(data=Path("/somewhere"), workers=workers, memory_bytes=memory_bytes)
    assert settings.worker_bytes == each_bytes


def test_a_worker_is_told_all_but_the_token() -> None:
    settings = Settings(data=Path("/some/where"), token=TOKEN, database="postgresql://u:secret@h/d", max_files=3)
    told = Settings.from_json(settings.to_json())
    assert told == replace(settings, token=None)
    assert told.data == Path("/some/where")
    assert TOKEN not in settings.to_json()


def test_no_secret_is_shown_with_the_settings() -> None:
    settings = Settings(data=Path("/x"), token=TOKEN, database="postgresql://u:hidden@h/d", files="s3://key:deep@x")
    assert not [secret for secret in (TOKEN, "hidden", "deep") if secret in repr(settings)]
    assert Settings(data=Path("/x")).token is Settings(data=Path("/x")).database is Settings(data=Path("/x")).files


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"host": "0.0.0.0"}, "token-needed"),
        ({"host": "192.0.2.1"}, "token-needed"),
        ({"token": TOKEN[1:]}, "token-too-short"),
        ({"token": "ä" * 16}, "token-not-ascii"),
        ({"token": TOKEN + "\n"}, "token-not-ascii"),
        ({"memory_bytes": 1}, "worker-memory-too-small"),
        ({"memory_bytes": 2 * GIB - 1}, "worker-memory-too-small"),
    ],
)
def test_what_is_unsafe_or_can_not_work_is_refused(changed: dict[str, Any], code: str) -> None:
    with pytest.raises(TracekitError, check=has_code(code)) as refused:
        check_settings(Settings(data=Path("/x"), **changed))
    if code == "token-too-short":
        assert refused.value.catalogue_message.values == {"min_length": 16}
    if code == "token-needed":
        values = refused.value.catalogue_message.values
        assert values["host"] == changed["host"]
        check_settings(Settings(data=Path("/x"), host="0.0.0.0", token=str(values["suggestion"])))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"host": "localhost"},
        {"host": "::1"},
        {"token": TOKEN},
        {"host": "0.0.0.0", "token": TOKEN},
        {"memory_bytes": 2 * GIB},
    ],
)
def test_what_is_safe_is_taken(changed: dict[str, Any]) -> None:
    check_settings(Settings(data=Path("/x"), **changed))


@pytest.mark.parametrize(
    ("descriptors", "most"),
    [
        (1024, 480),  # 64 for the server itself, two for each connection
        (1025, 480),
        (1026, 481),
        (82, 9),
        (64, 8),  # fewer than eight would serve nobody
        (10, 8),
        (2 * 4096 + 64, 4096),
        (1 << 20, 4096),
        (-1, 4096),  # no limit
    ],
)
def test_connections_go_by_the_descriptors(descriptors: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = SimpleNamespace(RLIMIT_NOFILE=7, getrlimit=lambda which: (descriptors, descriptors) if which == 7 else ())
    monkeypatch.setattr(server, "resource", limits)
    assert server.get_connection_limit() == most
