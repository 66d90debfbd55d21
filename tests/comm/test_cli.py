"""``tracekit clusters``."""

import json

import typer
from typer.testing import CliRunner

from tracekit.cli.clusters import clusters
from tracekit.comm import list_clusters

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
