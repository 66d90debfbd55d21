"""A job worked on rank by rank gives what one piece gives, on any engine; microseconds."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from distributed import Client, KilledWorker, LocalCluster

import tracekit as tk
from tests.codes import has_code, list_codes
from tests.conftest import SAMPLES
from tests.failing_disk import fail_in_turn
from tests.jobs import recorded
from tests.web.conftest import find_free_port
from tracekit.engine import InProcessEngine, open_engine
from tracekit.engine.on_dask import DaskEngine
from tracekit.errors import EngineError, RequestError, TraceError, TracekitError, WhatIfError
from tracekit.fleet import FleetReport, ReadingOptions, predict_fleet
from tracekit.fleet.join import find_repeats, join_fleet
from tracekit.fleet.rank_files import write_table
from tracekit.fleet.rank_part import RankPlace
from tracekit.fleet.summary import RankSummary, RankTask
from tracekit.messages import Message, fleets
from tracekit.prediction import part, rounds
from tracekit.prediction.model import PredictedStep
from tracekit.render.fleet import dump_fleet, render_fleet, render_fleet_page
from tracekit.render.screen import as_text
from tracekit.reporting.sections.step import build_source_summary
from tracekit.reporting.sections.targets import build_decision
from tracekit.request import PredictRequest, answers
from tracekit.request.options import FleetRequest
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

RANKS, STEPS = 4, 3
REAL = Path(os.environ.get("TRACEKIT_REAL_TRACES", ""))
needs_traces = pytest.mark.skipif(not os.environ.get("TRACEKIT_REAL_TRACES"), reason="TRACEKIT_REAL_TRACES is not set")


def worked(rank: int, ranks: int = RANKS) -> TraceBuilder:
    """Steps of 1,000: a product that takes longer the higher the rank, all-reduces beside another, and a wait."""
    builder = TraceBuilder()
    builder.metadata["distributedInfo"] = {"rank": rank, "world_size": ranks}
    group = recorded(nelems=1 << 20, ranks=str(list(range(ranks))))
    shape = {"dims": [[256 + rank, 512], [512, 128]], "types": ["float", "float"]}
    for number in range(STEPS):
        at = 1000 * number + 7 * rank
        product = 100 + 20 * rank + 5 * number
        builder.step(number, at, 950).op("aten::mm", at + 5, 30, **shape)
        builder.kernel("sgemm", at + 20, product, launch=at + 10)
        reduced = at + 25 + product
        last = 1000 * number + 7 * (ranks - 1) + 25 + 100 + 20 * (ranks - 1) + 5 * number
        builder.kernel("ncclDevKernel_AllReduce", reduced, last + 60 - reduced, launch=at + 40, stream=9, **group)
        builder.kernel("relu", at + 130 + product, 200, launch=at + 50)
        builder.call("cudaDeviceSynchronize", at + 60, 400)
        builder.kernel(
            "ncclDevKernel_AllReduce", at + 500, 1000 * number + 700 - at - 500, launch=at + 470, stream=9, **group
        )
        builder.call("cudaDeviceSynchronize", at + 600, 300)
    return builder


def save(folder: Path, ranks: int = RANKS) -> Path:
    for rank in range(ranks):
        worked(rank, ranks).save(folder / f"rank{rank}.json.gz")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield client


NOTHING = FleetRequest()
TARGETS = FleetRequest(gpu="h100-sxm", cluster="2x8xa100-sxm-80gb@hdr200")


def assert_equal(a: FleetReport, b: FleetReport) -> None:
    for one in fields(FleetReport):
        mine, other = getattr(a, one.name), getattr(b, one.name)
        assert mine.equals(other) if isinstance(mine, pl.DataFrame) else mine == other, one.name


PRICES = {"h100-sxm": 2.49, "a100-sxm-80gb": 1.29}
COMMON = {one.name for one in fields(PredictedStep)} - {"notes", "contention"}
"""Of a prediction, what a fleet's has too."""
TIMES = ("time_us", "low_us", "high_us", "bound_us", "utilization", "method")


def predict_with_kernels(files: list[str], request: FleetRequest) -> tuple[FleetReport, dict[str, pl.DataFrame]]:
    """Return the report, and the kernels of all ranks on each target."""
    kernels: dict[tuple[str, int], pl.DataFrame] = {}

    def sum_times(item: part.PartOnTarget) -> rounds.TimeSums:
        opened = item.open()
        place = item.place
        assert isinstance(place, RankPlace)
        kernels[opened.gpu.slug, place.rank.number] = part.apply_edits_to(opened.program, opened.times)
        return rounds.sum_times(item)

    with patch("tracekit.prediction.predictor.sum_times", sum_times):
        fleet = predict_fleet(files, request, InProcessEngine())
    labels = [one.gpu for one in fleet.targets]
    each = [pl.concat(table for key, table in sorted(kernels.items()) if key[0] == label) for label in labels]
    return fleet, dict(zip((one.label for one in fleet.targets), each, strict=True))


def assert_as_in_one_piece(files: list[str], **options: Any) -> None:
    request = FleetRequest(price=PRICES, no_calibration=True, no_scoreboard=True, **options)
    fleet, kernels = predict_with_kernels(files, request)
    run = answers.measure(tk.load(files), request)
    assert fleet.step == run.measured_step
    assert fleet.replayed_us == run.self_replay.step_time_us
    found = answers.predict(run, request)
    summary = build_source_summary(found.run, found.price, found.batch, cluster=found.cluster)
    assert fleet.decision == build_decision(summary, found.targets, request.question)
    assert len(fleet.targets) == len(found.targets)
    for one in fleet.targets:
        other = found[one.label]
        for name in COMMON:
            assert getattr(one, name) == getattr(other, name), name
        assert describe_notes(one) == describe_notes(other)
        assert find_overlap(one) == find_overlap(other) or not find_overlap(other)
        assert kernels[one.label].select(TIMES).equals(other.kernels.select(TIMES))


def describe_notes(step: PredictedStep) -> list[tuple[str, str]]:
    """Return the codes and values of the notes in any order, but for contention, which takes all kernels at once."""
    left_out = ("contention-left-out", "kernels-contend")
    return sorted((one.code, str(round_values(one.values))) for one in step.notes if one.code not in left_out)


def find_overlap(step: PredictedStep) -> list[tuple[object, object]]:
    """Return what is noted of kernels that overlap, with or without contention."""
    told = [one.values for one in step.notes if one.code in ("contention-left-out", "kernels-contend")]
    return [(one["overlap_pct"], one["apart_us"]) for one in told]


def round_values(values: Mapping[str, Any]) -> dict[str, object]:
    """Round what was summed in another order."""
    return {name: f"{one:.9g}" if isinstance(one, float) else one for name, one in values.items()}


def list_files(folder: Path) -> list[str]:
    return sorted(map(str, folder.iterdir()))


def test_rank_by_rank_gives_what_one_piece_gives(folder):
    assert_as_in_one_piece(list_files(folder), gpu=TARGETS.gpu, cluster=TARGETS.cluster)


def test_options_together_give_what_they_give_in_one_piece(folder):
    asked = {"clock": "1200MHz", "power_cap": "400W", "what_if": ["scale(family=gemm, 0.5)", "remove(name=relu)"]}
    assert_as_in_one_piece(list_files(folder), gpu="h100-sxm", **asked)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "options",
    [
        {"host": "same"},
        {"clock": "1200MHz"},
        {"source_clock": "1000MHz"},
        {"power_cap": "400W"},
        {"source_gpu": "t4"},
        {"steps": "1"},
        {"rank_by": "dollars", "steps_to_run": 1e5},
        {"what_if": "scale(family=gemm, 0.5)"},
        {"what_if": ["scale(family=collective, 2)", "host-speed(2)"]},
        {"what_if": "remove(family=collective)"},
        {"what_if": "remove(name=relu)"},
        {"what_if": "no-sync()"},
        {"host_speed": 1.5},
    ],
    ids=str,
)
def test_options_give_what_they_give_in_one_piece(folder, options):
    assert_as_in_one_piece(list_files(folder), gpu="h100-sxm", cluster="4xl40s", **options)


@pytest.mark.heavy
@needs_traces
def test_a_real_job_gives_what_one_piece_gives():
    files = sorted(map(str, REAL.glob("mi300x_ddp_train_rank*")))
    assert_as_in_one_piece(files, gpu="h100-sxm", cluster=["2x8xmi300x@ndr400", "1x8xh200-sxm"])


@needs_traces
@pytest.mark.heavy
@pytest.mark.parametrize(
    "options", [{"dp": 4}, {"batch": 2}, {"world_size": 16, "what_if": "scale(family=gemm, 0.5)"}], ids=str
)
def test_a_real_job_in_another_layout_gives_what_one_piece_gives(options):
    files = sorted(map(str, REAL.glob("mi300x_ddp_train_rank*")))
    assert_as_in_one_piece(files, cluster="2x8xh100-sxm@ndr400", **options)


@pytest.mark.heavy
@needs_traces
def test_a_recommender_gives_what_one_piece_gives():
    """The errors of its kernels of one law differ by rank, and all ranks' tell the times elsewhere."""
    files = sorted(map(str, REAL.glob("v100_dlrm_train_rank*.json.gz")))
    assert_as_in_one_piece(files, gpu="a100-sxm-80gb")


def test_who_holds_up_the_job(folder):
    fleet = predict_fleet(str(folder), NOTHING, InProcessEngine())
    assert (fleet.ranks, fleet.world_size, fleet.targets) == (RANKS, RANKS, ())
    late = fleet.stragglers.sort("held_up_us")["rank"].to_list()
    assert late[-1] == RANKS - 1  # whose product takes longest, and begins last
    assert fleet.steps["slowest"].to_list() == [RANKS - 1] * fleet.steps.height


@pytest.mark.heavy
def test_dask_gives_the_same(folder, client):
    here = predict_fleet(str(folder), TARGETS, InProcessEngine())
    assert_equal(predict_fleet(str(folder), TARGETS, open_engine(client)), here)


@pytest.mark.heavy
def test_a_lost_workers_ranks_are_done_again(folder, client, tmp_path):
    """A worker is killed in the middle, and what both had written is gone."""
    here = predict_fleet(str(folder), TARGETS, InProcessEngine())
    killed: list[int] = []

    def kill(stage: Message) -> None:
        if stage.code == "linking-ranks" and not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)
            for child in tmp_path.iterdir():
                shutil.rmtree(child)

    reading = ReadingOptions(store=str(tmp_path))
    assert_equal(predict_fleet(str(folder), TARGETS, open_engine(client), kill, reading), here)
    assert killed
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_told_as_one(tmp_path):
    """Whichever operation it shows at: a folder, an open file, a write or a rename."""
    table = pl.DataFrame({"a": [1]})

    def write():
        with contextlib.suppress(OSError):
            write_table(str(tmp_path / "rank0"), "kernels", table)

    def check(operation, error):
        shutil.rmtree(tmp_path / "rank0", ignore_errors=True)

    operations = fail_in_turn(tmp_path, lambda: check("", 0), write, check)
    assert {"mkdir", "open", "write"} <= set(operations)


def test_an_unreadable_rank_is_named_and_the_rest_reported(tmp_path):
    save(tmp_path)
    (tmp_path / "rank2.json.gz").write_bytes(b"\x1f\x8bnothing")
    fleet = predict_fleet(str(tmp_path), NOTHING, InProcessEngine())
    assert fleet.ranks == RANKS - 1
    assert fleet.stragglers["rank"].to_list() == [0, 1, 3]
    told = next(one for one in fleet.warnings if one.code == "ranks-unreadable")
    assert "rank2.json.gz" in str(told)
    assert "rank-missing" in list_codes(fleet.warnings)


def test_a_job_without_a_readable_rank_fails(tmp_path):
    (tmp_path / "rank0.json").write_text("{")
    with pytest.raises(TraceError):
        predict_fleet(str(tmp_path), NOTHING, InProcessEngine())


def test_one_rank_is_a_fleet_too(tmp_path):
    worked(0, 1).save(tmp_path / "rank0.json")
    assert_as_in_one_piece([str(tmp_path / "rank0.json")], gpu="h100-sxm")


def test_ranks_without_the_thread_of_their_steps_are_replayed_alike():
    """One rank lacks it, so that no rank's replay times the marks; alone it times what it has."""
    task = RankTask(*[None] * 9)  # type: ignore[call-arg]
    schema = dict.fromkeys((one.name for one in fields(RankSummary)), None)
    told, lacking = (
        RankSummary(**schema | {"task": task, "steps": pl.DataFrame({"pid": [pid]}), "is_marked": True})  # type: ignore[arg-type]
        for pid in (1, None)
    )
    assert [one.task.without_marks for one in find_repeats([told, lacking])] == [True, True]
    assert find_repeats([told, told]) == find_repeats([lacking]) == []


@pytest.mark.parametrize("is_marked", [True, False])
def test_of_ranks_that_begin_late_the_latest_is_told(tmp_path, is_marked):
    """One step each: launches until 7, whose kernels start at 5,000 and 3,000, as something wasn't recorded."""
    group = recorded(nelems=1 << 20, ranks="[0, 1]")
    for rank, waits in enumerate((5000, 3000)):
        builder = TraceBuilder()
        builder.metadata["distributedInfo"] = {"rank": rank, "world_size": 2}
        if is_marked:
            builder.step(5, 0, 7500)
        builder.kernel("a", waits, 1000, launch=2)
        builder.kernel("ncclDevKernel_AllReduce", waits + 1001, 6500 - waits, launch=20, **group)
        builder.call("cudaDeviceSynchronize", 60, 7450).save(tmp_path / f"rank{rank}.json")
    files = list_files(tmp_path)
    (whole,) = [one for one in prepare_run(tk.load(files)).provenance.job_warnings if one.code == "step-begins-late"]
    fleet = predict_fleet(files, FleetRequest(), InProcessEngine())
    assert [one for one in fleet.warnings if one.code == "step-begins-late"] == [whole]
    assert whole.values["waited_us"] == 5000 - 7


def test_a_clock_that_is_ahead_is_put_right(tmp_path):
    """Rank 1 begins 7 later, by a clock that is 40 ahead: collectives end at the same time on both."""
    for rank in range(2):
        builder = worked(rank, 2)
        builder.base_ns += 40_000 * rank
        builder.save(tmp_path / f"rank{rank}.json")
    found = []
    with patch("tracekit.fleet.predict.join_fleet", lambda *given: found.append(join_fleet(*given)) or found[-1]):
        predict_fleet(list_files(tmp_path), FleetRequest(), InProcessEngine())
    assert [one.shift_ns for one in found[-1].ranks] == [0, 7000]


def test_progress_counts_all_ranks(folder):
    seen: list[Message] = []
    predict_fleet(str(folder), NOTHING, InProcessEngine(), seen.append)
    assert [one.values["done"] for one in seen if one.code == "reading-ranks"] == list(range(RANKS + 1))


@pytest.mark.parametrize(
    ("engine", "code"), [("ray", "engine-unknown"), ("tcp://127.0.0.1:1", "scheduler-unreachable")]
)
def test_engines_that_are_none(engine, code, monkeypatch):
    monkeypatch.setattr("tracekit.engine.on_dask.PATIENCE", "1s")
    with pytest.raises(TracekitError) as error:
        open_engine(engine)
    assert error.value.code == code


@pytest.mark.parametrize(
    ("raised", "code"),
    [(CancelledError(), "scheduler-lost"), (KilledWorker("task", None, []), "workers-ended")],
)
def test_what_dask_loses_is_said(raised, code):
    def lose(*_, **__):
        raise raised

    engine = DaskEngine(SimpleNamespace(map=lose, run=lose))
    for work in (lambda: engine.map(str, [1], print), lambda: engine.run_everywhere(str, 1)):
        with pytest.raises(EngineError, check=has_code(code)):
            work()


class LostEngine(InProcessEngine):
    """Works on the ranks for some rounds; then it is lost, as with its scheduler."""

    def __init__(self, rounds):
        super().__init__()
        self.rounds = rounds

    def map(self, *arguments):
        self.rounds -= 1
        if self.rounds < 0:
            raise EngineError(fleets.SCHEDULER_LOST())
        return super().map(*arguments)

    def run_everywhere(self, *_):
        raise EngineError(fleets.SCHEDULER_LOST())


def test_a_lost_engine_leaves_no_files(folder, tmp_path):
    """And takes no report that is done with it."""
    reading = ReadingOptions(store=str(tmp_path))
    with pytest.raises(EngineError, check=has_code("scheduler-lost")):
        predict_fleet(str(folder), NOTHING, LostEngine(1), reading=reading)
    assert [*tmp_path.iterdir()] == []
    assert predict_fleet(str(folder), NOTHING, LostEngine(9), reading=reading).ranks == RANKS
    assert [*tmp_path.iterdir()] == []


@pytest.mark.heavy
@pytest.mark.parametrize("stage", ["reading-ranks", "linking-ranks"])
def test_a_killed_scheduler_ends_the_fleet_in_one_error(folder, tmp_path, stage):
    """Within seconds, and with nothing left behind."""
    address = f"tcp://127.0.0.1:{find_free_port()}"
    scheduler = ["dask_scheduler", "--host", address, "--no-dashboard"]
    worker = ["dask_worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
    with contextlib.ExitStack() as stack:
        processes = []
        for name, *options in (scheduler, worker):
            command = [sys.executable, "-m", f"distributed.cli.{name}", *options]
            processes.append(stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL)))
            stack.callback(processes[-1].kill)
        engine = stack.enter_context(contextlib.closing(DaskEngine.connect(address)))
        killed = []

        def kill(said: Message) -> None:
            if said.code == stage and not killed:
                killed.append(time.monotonic())
                processes[0].kill()

        with pytest.raises(EngineError, check=has_code("scheduler-lost")):
            predict_fleet(str(folder), TARGETS, engine, kill, ReadingOptions(store=str(tmp_path)))
        assert time.monotonic() - killed[0] < 60
        assert [*tmp_path.iterdir()] == []


def test_options_that_need_all_ranks_at_once_are_refused(folder):
    with pytest.raises(RequestError) as error:
        answers.predict_fleet(str(folder), PredictRequest(gpu="h100-sxm", unprofiled_step="1ms"), InProcessEngine())
    assert error.value.code == "fleet-option"
    assert "--unprofiled-step" in str(error.value)


def test_an_edit_that_no_rank_has_anything_for_is_refused(folder):
    with pytest.raises(WhatIfError):
        predict_fleet(str(folder), FleetRequest(gpu="h100-sxm", what_if="remove(name=nothing)"), InProcessEngine())


def test_an_edit_changes_the_ranks_that_it_finds_something_on(tmp_path):
    for rank in range(2):
        builder = worked(rank, 2)
        if rank:
            for event in builder.events:
                event["name"] = event["name"].replace("relu", "gelu")
        builder.save(tmp_path / f"rank{rank}.json")
    assert_as_in_one_piece(list_files(tmp_path), gpu="h100-sxm", what_if="scale(name=gelu, 3)")


@pytest.mark.heavy
def test_an_edit_lowers_what_its_job_needs():
    """Without its matrix products the forward pass writes less, rank by rank as in one piece."""
    files = [str(SAMPLES / "synthetic_transformer_train.json.gz")]
    assert_as_in_one_piece(files, gpu="h100-sxm", what_if="remove(name=gemm)")
    edited, whole = (
        predict_fleet(files, FleetRequest(gpu="h100-sxm", what_if=edits), InProcessEngine()).targets[0].memory.max_bytes
        for edits in ("remove(name=gemm)", None)
    )
    assert edited is not None
    assert whole is not None
    assert edited < whole


def test_a_thousand_ranks_are_as_readable_as_four(folder):
    """Top lists and distributions on screen and page; every rank in JSON."""
    fleet = predict_fleet(str(folder), TARGETS, InProcessEngine())
    busy_us = np.linspace(100, 300, 1024)
    ranks = pl.DataFrame({"rank": range(1024), "busy_us": busy_us, "held_up_us": busy_us, "wait_us": 400 - busy_us})
    many = replace(fleet, ranks=1024, stragglers=ranks.with_columns(last_share=0.1, clock_ahead_us=0.0))
    screen, page = as_text(render_fleet(many, 5)), render_fleet_page(many, 5)
    assert len(screen.splitlines()) < 70
    assert page.count("<tr") < 60
    assert "1,019 ranks more" in screen.replace("1019", "1,019")
    assert all(f">{rank}<" in page for rank in range(1019, 1024))
    assert "https:" not in page
    told = json.loads(dump_fleet(many))
    assert len(told["ranks"]) == 1024
    assert [one["label"] for one in told["targets"]] == [one.label for one in fleet.targets]


def test_python_takes_an_engine_by_name(folder):
    fleet = tk.predict_fleet(str(folder), engine="local", gpu="h100-sxm")
    assert fleet["h100-sxm"].low_us < fleet["h100-sxm"].step.step_time_us < fleet["h100-sxm"].high_us


def test_ranks_at_work_at_a_time_share_the_memory(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert InProcessEngine(2).share_memory(1000) == 500
    assert InProcessEngine(16).share_memory(1000) == InProcessEngine().share_memory(1000) == 250
