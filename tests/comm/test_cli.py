"""``tracekit clusters``."""

import json

import typer
from typer.testing import CliRunner

from tracekit.cli.machine import clusters
from tracekit.comm import list_clusters
from tracekit.comm.cluster import CLUSTER_FOLDER

app = typer.Typer()
app.command()(clusters)


def output(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_all_are_listed():
    shown = output()
    assert all(name in shown for name in list_clusters())
    assert [one["slug"] for one in json.loads(output("--json"))] == list_clusters()


def test_one_is_shown_with_its_sources():
    shown = output("p5")
    assert "AWS p5.48xlarge" in shown
    assert "[2]" in shown
    found = json.loads(output("4x8xh100-sxm@ndr400", "--json"))
    assert found["gpus"] == 32
    assert found["network_gbps"] == 50
    assert found["sources"]["fabric"].startswith("NVIDIA DGX H100")


def test_what_was_measured_stands_beside_the_model(tmp_path):
    path = tmp_path / "lab.toml"
    entry = 'collective = "all_reduce"\nbytes = 1_073_741_824\nranks = 16\ntime_us = 9000'
    path.write_text((CLUSTER_FOLDER / "dgx-h100.toml").read_text() + f"\n[[measured]]\n{entry}\n")
    assert "all_reduce of 1 GiB over 16 ranks: 9 ms, 4." in " ".join(output(str(path)).split()).replace("9.00", "9")
    assert json.loads(output(str(path), "--json"))["measured"][0]["time_us"] == 9000
