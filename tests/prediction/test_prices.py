"""Prices as people write them, and whose they are."""

import datetime
from pathlib import Path

import pytest

import tracekit as tk
from predictors import list_gpus, load_gpu
from predictors.errors import AmbiguousGpuError, UnknownGpuError
from tracekit.comm import load_cluster
from tracekit.comm.cluster import list_cluster_files
from tracekit.errors import RequestError
from tracekit.prediction.batch import StepBatch
from tracekit.prediction.cost import GivenPrices, PriceFile, Prices, parse_prices, read_price_file
from tracekit.prediction.question import WholeRun, parse_amount
from tracekit.prediction.targets import expand_group
from tracekit.reporting.sections.step import build_source_summary
from tracekit.request import PredictRequest
from tracekit.testing import TraceBuilder

A100, H100, H100_PCIE, L4 = (load_gpu(name) for name in ("a100-sxm-80gb", "h100-sxm", "h100-pcie", "l4"))
NOVEMBER = datetime.date(2026, 11, 1)


def resolve(*texts: str, targets=(H100,), clusters=(), file=None, today=NOVEMBER) -> Prices:
    return parse_prices(texts, file).resolve(A100, targets, [load_cluster(name) for name in clusters], today)


@pytest.mark.parametrize(
    "text",
    ["h100-sxm=2.49", "H100=2.49", "H100 = $2.49", "NVIDIA H100 80GB HBM3=2.49$/h", "2.49", "$2.49", " 2.49/hr "],
)
def test_a_price_is_understood_as_people_write_it(text: str) -> None:
    assert resolve(text).dollars == {"h100-sxm": 2.49}


def test_a_name_means_the_gpu_at_hand() -> None:
    """An A100 may be four; the trace says which. An H100 is the PCIe one where that is the only target."""
    assert resolve("A100=1.29").dollars == {"a100-sxm-80gb": 1.29}
    assert resolve("H100=2", targets=(H100_PCIE,)).dollars == {"h100-pcie": 2.0}
    with pytest.raises(AmbiguousGpuError) as refused:
        resolve("H100=2", targets=(H100, H100_PCIE))
    assert refused.value.candidates == ("h100-sxm", "h100-pcie")


def test_a_price_of_a_whole_instance_is_that_of_its_gpus_together() -> None:
    """16 instances of 8 GPUs for 6,400 dollars: 50 for each. Another cluster of these GPUs has its own price."""
    prices = resolve("16xp5=6400", "h100-sxm=2", clusters=["16xp5", "8xh100-sxm"])
    assert prices.find(H100, load_cluster("16xp5")) == 50.0
    assert prices.find(H100, load_cluster("8xh100-sxm")) == 2.0
    assert resolve("p5=80", clusters=["2xp5"]).find(H100, load_cluster("2xp5")) == 10.0


def test_a_price_that_nothing_has_is_said() -> None:
    prices = resolve("t4=1", "l4=2", "h100-sxm=3")
    assert [(doubt.code, doubt.values["gpus"]) for doubt in prices.doubts] == [("price-unused", ("t4", "l4"))]


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        (["h100-sxm="], "price-not-a-pair"),
        (["=2"], "price-not-a-pair"),
        (["h100-sxm=-2"], "price-not-dollars"),
        (["-2"], "price-not-dollars"),
        (["h100-sxm=2€"], "price-not-a-pair"),
        (["h100-sxm=1e400"], "price-not-a-pair"),
        (["2", "3"], "prices-differ"),
        (["h100-sxm=2", "H100 SXM=3"], "prices-differ"),
    ],
)
def test_what_is_no_price_is_refused_before_a_trace_is_read(texts: list[str], code: str) -> None:
    with pytest.raises(RequestError) as refused:
        PredictRequest(gpu="h100-sxm", price=texts)
    assert refused.value.code == code


def test_a_price_without_a_name_has_one_owner() -> None:
    with pytest.raises(RequestError) as refused:
        resolve("2.49", targets=(H100, L4))
    assert refused.value.code == "price-without-name"
    with pytest.raises(RequestError) as refused:
        resolve("2.49", "h100-sxm=3")
    assert refused.value.code == "prices-differ"


def test_nothing_of_that_name_is_refused() -> None:
    with pytest.raises(UnknownGpuError):
        GivenPrices({"h1000": 2.0}).check()


FILE = """
date = 2026-11-01
source = "contract"
[dollars_an_hour]
"A100 SXM 80GB" = 1.29
h100-sxm = 2
t4 = 0.3
p5 = 40
"""


def test_a_file_of_prices_has_a_date_and_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(FILE)
    file = read_price_file(path)
    assert (file.date, file.source, file.dollars["p5"]) == (NOVEMBER, "contract", 40.0)
    prices = resolve("h100-sxm=3", file=file, clusters=["p5"])
    assert prices.dollars == {"a100-sxm-80gb": 1.29, "h100-sxm": 3.0, "AWS p5.48xlarge": 5.0}
    assert (prices.date, prices.doubts) == ("2026-11-01", ())
    unused = parse_prices(["l4=1"], file).resolve(None, [L4], (), NOVEMBER)
    assert (unused.dollars, unused.date) == ({"l4": 1.0}, None)


def test_old_prices_are_doubted() -> None:
    file = PriceFile(NOVEMBER, {"h100-sxm": 2.0})
    for days, codes in ((90, []), (91, ["prices-old"])):
        prices = resolve(file=file, today=NOVEMBER + datetime.timedelta(days))
        assert [doubt.code for doubt in prices.doubts] == codes


@pytest.mark.parametrize(
    "content",
    [
        "",
        "date = ",
        "[dollars_an_hour]\nh100-sxm = 2",
        'date = "2026-11-01"\n[dollars_an_hour]\nh100-sxm = 2',
        "date = 2026-11-01T00:00:00\n[dollars_an_hour]\nh100-sxm = 2",
        "date = 2026-11-01",
        "date = 2026-11-01\n[dollars_an_hour]",
        'date = 2026-11-01\n[dollars_an_hour]\nh100-sxm = "2"',
        "date = 2026-11-01\n[dollars_an_hour]\nh100-sxm = true",
        "date = 2026-11-01\nprices = 3\n[dollars_an_hour]\nh100-sxm = 2",
        "date = 2026-11-01\nsource = 3\n[dollars_an_hour]\nh100-sxm = 2",
    ],
)
def test_a_wrong_file_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(content)
    with pytest.raises(RequestError) as refused:
        PredictRequest(gpu="h100-sxm", prices=str(path))
    assert refused.value.code == "price-file-invalid"


@pytest.mark.parametrize(
    ("content", "code"), [("h100-sxm = -2", "price-not-dollars"), ("h100-sxm = nan", "price-not-dollars")]
)
def test_a_wrong_price_in_a_file_is_refused(content: str, code: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(f"date = 2026-11-01\n[dollars_an_hour]\n{content}")
    with pytest.raises(RequestError) as refused:
        PredictRequest(gpu="h100-sxm", prices=str(path))
    assert refused.value.code == "price-not-dollars"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as refused:
        PredictRequest(gpu="h100-sxm", prices=str(tmp_path))
    assert refused.value.code == "price-file-invalid"


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("50000", 5e4),
        ("300k", 3e5),
        ("2B", 2e9),
        ("2b", 2e9),
        ("1.5 M", 1.5e6),
        ("1e9", 1e9),
        ("1,000,000", 1e6),
        ("1T", 1e12),
    ],
)
def test_an_amount_is_understood_as_people_write_it(text: str, amount: float) -> None:
    assert parse_amount(text) == amount


@pytest.mark.parametrize("text", ["", "k", "-5", "0", "nan", "inf", "1e400", "2x", "B2"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    assert parse_amount(text) is None
    with pytest.raises(RequestError) as refused:
        PredictRequest(gpu="l4", tokens_to_run=text)
    assert refused.value.code == "run-length-malformed"


def test_a_job_has_one_length() -> None:
    with pytest.raises(RequestError) as refused:
        PredictRequest(gpu="l4", tokens_to_run="2B", steps_to_run=1000)
    assert refused.value.code == "run-length-given-twice"


def test_tokens_are_counted_only_in_steps_that_have_them() -> None:
    assert WholeRun(1000.0, "steps").count_steps(None) == 1000
    assert WholeRun(1000.0, "tokens").count_steps(StepBatch(50.0, "tokens")) == 20
    for batch, code in ((None, "run-unit-unknown"), (StepBatch(50.0, "samples"), "run-unit-differs")):
        with pytest.raises(RequestError) as refused:
            WholeRun(1000.0, "tokens").count_steps(batch)
        assert refused.value.code == code


def test_targets_are_ranked_by_what_is_known() -> None:
    with pytest.raises(RequestError) as refused:
        PredictRequest(gpu="l4", rank_by="colour")
    assert refused.value.code == "rank-by-unknown"
    with pytest.raises(RequestError) as refused:
        tk.predict(TraceBuilder().kernel("ampere_sgemm", 20, 100, launch=10).load(), gpu="l4", rank_by="dollars")
    assert refused.value.code == "rank-by-without-price"


def test_groups_are_of_all_gpus() -> None:
    assert expand_group("all") == list_gpus()
    servers, desktops = {*expand_group("Datacenter")}, {*expand_group("consumer")}
    assert {"h100-sxm", "mi300x", "l4", "t4", "rtx-pro-6000-server"} <= servers
    assert {"rtx-4090", "rx-7900-xtx", "arc-b580"} <= desktops
    assert not servers & desktops
    assert expand_group("h100") == ["h100"]


def test_a_clouds_instance_is_rented_whole() -> None:
    """All of a cloud's have it from their own source; what one owns is rented by the GPU."""
    rented = {name: load_cluster(name).rented_gpus for name in list_cluster_files()}
    assert (rented["p5"], rented["a2-mega"], rented["a4x"], rented["dgx-h100"], rented["l40s-pcie"]) == (8, 16, 4, 1, 1)
    clouds = ("AWS", "Google Cloud", "Azure", "Oracle Cloud")
    for name in list_cluster_files():
        cluster = load_cluster(name)
        assert (cluster.rented_gpus > 1) == cluster.name.startswith(clouds)
        assert (cluster.rented_gpus > 1) == ("rented_gpus" in cluster.sources)
    assert [load_cluster("16xp5").count_rented_gpus(used) for used in (1, 8, 9, 128)] == [8, 8, 16, 128]


def test_a_step_on_one_gpu_of_an_instance_costs_all_eight() -> None:
    """80 dollars an hour for a p5, 24 for the p4de of the trace: each second of a thousand steps costs that / 3,600."""
    builder = TraceBuilder().op("aten::mm", 0, 8, dims=[[1024, 1024]] * 2, types=["float"] * 2)
    builder.kernel("ampere_sgemm_128x64_nn", 20, 1000, launch=2).call("cudaDeviceSynchronize", 30, 1000)
    found = tk.predict(builder.load(), cluster="p5", source_cluster="p4de", price=["p5=80", "p4de=24"])
    (there,) = found.targets
    assert (there.rented, there.price) == (8, 10.0)
    assert there.dollars_per_1000_steps == pytest.approx(there.step.mean_us / 1e3 * 80 / 3600)
    here = build_source_summary(found.run, found.price, found.batch, cluster=found.cluster)
    assert (here.rented, here.price) == (8, 3.0)
    assert here.dollars_per_1000_steps == pytest.approx(1.030 * 24 / 3600)


def test_blanks_around_a_name_are_no_part_of_it() -> None:
    assert parse_prices([" h100-sxm =2", "l4= 3"]).named == {"h100-sxm": 2.0, "l4": 3.0}
