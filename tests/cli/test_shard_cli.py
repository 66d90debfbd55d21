"""``tracekit shard``."""

import json

import polars as pl
import pytest

from tracekit.testing import A100, TraceBuilder

CLUSTER = ("--cluster", "8xh100-sxm")
TABLES = [
    {"name": "user", "num_embeddings": 40_000_000, "embedding_dim": 128, "pooling_factor": 20, "data_type": "FP16"},
    {"rows": 1000, "width": 64, "count": 3, "alpha": 1.05, "optimizer": "EXACT_ADAGRAD", "feature_names": ["a", "b"]},
    "2*1Mx64:5",
]


@pytest.fixture
def tables(tmp_path):
    path = tmp_path / "tables.json"
    path.write_text(json.dumps(TABLES))
    return path


@pytest.fixture
def trace(tmp_path):
    dims = [[0], [640_000], [0], [0, 0], [3], [3], [4], [], [], [4], [], [1792], [385]]
    types = ["float", "c10::Half", "float", "float", "int", "long int", "int", "", "", "long int", "", "long int",
             "long int"]  # fmt: skip
    concrete = ["", "", "", "", "", "", "", "48", "16", "", "31", "", ""]
    name = "fbgemm::split_embedding_codegen_lookup_adagrad_function"
    builder = TraceBuilder(A100).op(name, 0, 40, dims=dims, types=types, concrete=concrete)
    builder.kernel("split_embedding_codegen_forward_unweighted_kernel", 50, 30, launch=5)
    return builder.save(tmp_path / "trace.json")


def test_a_plan_in_torchrecs_form(run, tables, tmp_path):
    code, out, err = run("shard", tables, "--batch", 4096, *CLUSTER, "-q", "-o", tmp_path / "plan.json")
    assert (code, err) == (0, "")
    assert "best found" in out
    (module, parameters), *others = json.loads((tmp_path / "plan.json").read_text()).items()
    assert (module, others) == ("sparse_arch.embedding_bag_collection", [])
    assert list(parameters) == ["user", "table_1", "table_2", "table_3", "table_4", "table_5"]
    for one in parameters.values():
        assert set(one) == {"sharding_type", "compute_kernel", "ranks", "sharding_spec"}
        shards = one["sharding_spec"]["shards"] if one["sharding_spec"] else []
        assert [shard["placement"] for shard in shards] == [
            f"rank:{rank}/cuda:{rank}" for rank in one["ranks"] if shards
        ]
    user = parameters["user"]["sharding_spec"]["shards"]
    assert sum(rows * columns for rows, columns in (shard["shard_sizes"] for shard in user)) == 40_000_000 * 128


def test_all_figures_as_json(run, tables):
    code, out, _ = run("shard", tables, "--batch", 4096, *CLUSTER, "--cluster", "2x8xh100-sxm@ndr400", "--json")
    assert code == 0
    first, second = json.loads(out)["clusters"]
    assert (first["ranks"], second["ranks"]) == (8, 16)
    for cluster in (first, second):
        times = [plan["time_us"] for plan in cluster["plans"]]
        assert times == sorted(times)
        for plan in cluster["plans"]:
            assert plan["time_us"] == pytest.approx(sum(part["time_us"] for part in plan["parts"]))
            assert len(plan["ranks"]) == cluster["ranks"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_shards_as_a_table(run, tables, tmp_path, suffix):
    path = tmp_path / f"shards{suffix}"
    assert run("shard", tables, "--batch", 4096, *CLUSTER, "-q", "-o", path)[0] == 0
    table = pl.read_csv(path) if suffix == ".csv" else pl.read_parquet(path)
    assert table.columns == ["table", "type", "kernel", "rank", "row", "column", "rows", "columns"]


def test_tables_of_a_trace(run, trace):
    code, out, _ = run("shard", trace, *CLUSTER, "--json")
    (cluster,) = json.loads(out)["clusters"]
    assert (code, cluster["batch"]) == (0, 128)
    assert {shard["table"] for shard in cluster["plans"][0]["shards"]} == {f"rank0_lookup0_table{i}" for i in range(3)}
    assert "sharding-trace-tables-equal" in [note["code"] for note in cluster["notes"]]


def test_a_known_skew_needs_no_note(run):
    given = ("shard", "--table", "8*1Mx64:5", "--batch", 512, *CLUSTER, "--json")
    notes = [
        [note["code"] for note in json.loads(run(*given, *more)[1])["clusters"][0]["notes"]]
        for more in ((), ("--zipf", "1.2"))
    ]
    assert ["sharding-skew-assumed" in codes for codes in notes] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--table", "1Mx64", "--batch", "8"], "There is no cluster"),
        (["--table", "1Mx64", *CLUSTER], "--batch"),
        ([*CLUSTER, "--batch", "8"], "no embedding tables"),
        (["--table", "1Mx", *CLUSTER, "--batch", "8"], "is no embedding table"),
        (["--table", "1Mx64", *CLUSTER, "--batch", "0"], "batch"),
        (["--table", "1Mx64", *CLUSTER, "--batch", "8", "--optimizer", "shampoo"], "optimizer"),
        (["--table", "1Mx64", *CLUSTER, "--batch", "8", "--data-type", "fp7"], "data type"),
        (["--table", "1Mx64", *CLUSTER, "--batch", "8", "--dense-time", "3"], "3"),
        (["--table", "1Mx64", "--cluster", "8xh123", "--batch", "8"], "h123"),
        (["--table", "1Mx64", *CLUSTER, "--batch", "8", "--dense-memory", "200"], "doesn't fit"),
    ],
)
def test_bad_requests(run, arguments, expected):
    code, out, err = run("shard", *arguments)
    assert code in (1, 2)
    assert out == ""
    assert expected in err
    assert len(err.strip().splitlines()) <= 2


@pytest.mark.parametrize(
    "content",
    [
        '[{"num_embeddings": 5}]',
        '[{"num_embeddings": 0, "embedding_dim": 8}]',
        '[{"num_embeddings": 5, "embedding_dim": 8.5}]',
        '[{"num_embeddings": 5, "embedding_dim": 8, "pooling_factor": -1}]',
        '[{"num_embeddings": 5, "embedding_dim": 8, "colour": "red"}]',
        '[{"num_embeddings": 5, "embedding_dim": 8, "data_type": "FP7"}]',
        '[{"num_embeddings": 5, "embedding_dim": 8, "optimizer": 7}]',
        '[{"name": "a", "rows": 5, "width": 8}, {"name": "a", "rows": 5, "width": 8}]',
        '["5x"]',
        '{"tables": ["9x9:1:99"]}',
        '{"tables": "9x9"}',
        '{"tables": ["9x9"], "batch_size": 0}',
        '{"tables": ["9x9"], "table_optimizer": "shampoo"}',
        '{"tables": ["9x9"], "table_optimizer": 7}',
        "[]",
    ],
)
def test_bad_tables(run, tmp_path, content):
    path = tmp_path / "tables.json"
    path.write_text(content)
    code, out, err = run("shard", path, *CLUSTER, "--batch", 8)
    assert (code, out) == (1, "")
    assert len(err.strip().splitlines()) <= 2


def test_a_configuration_tells_its_batch_and_optimizer(run, tmp_path):
    path = tmp_path / "dlrm.json"
    path.write_text('{"tables": ["8*1Mx64:5"], "batch_size": 512, "table_optimizer": "adam", "top_mlp": [8, 1]}')
    _, out, _ = run("shard", path, *CLUSTER, "--json")
    _, same, _ = run("shard", path, *CLUSTER, "--json", "--batch", 512, "--optimizer", "adam")
    _, other, _ = run("shard", path, *CLUSTER, "--json", "--optimizer", "sgd")
    assert json.loads(out)["clusters"][0]["batch"] == 512
    assert out == same != other


def test_an_output_that_exists_stays(run, tables, tmp_path):
    (tmp_path / "plan.json").write_text("mine")
    assert run("shard", tables, *CLUSTER, "--batch", 8, "-o", tmp_path / "plan.json")[0] == 1
    assert (tmp_path / "plan.json").read_text() == "mine"
