"""Files of indices into embedding tables: each form, what they tell, and bad ones."""

import gzip
import os
import zipfile
from io import BytesIO

import numpy as np
import pytest

import tracekit as tk
from tracekit.capturing.index_files import read_index_pattern
from tracekit.errors import IndexFileError, RequestError
from tracekit.models.lookups import get_distribution

INDICES = [7, 7, 2, 7, 9, 2]
"""Three rows: one drawn three times, one twice, one once."""
LOCALITY = """fbgemm_t2_bs4.pt
Locality stats after processing 1 batches of size 4
Avg # of indices: 10
Avg # of unique cols: 4
Avg col size: 2.5
Histogram of col sizes:
(0, 1]: 0.500
(1, 2]: 0.000
(2, 4]: 0.500
(4+: 0.000
['0.000', '0.500']
Ratio of index distribution at different column sizes:
(0, 1]: 0.200
(1, 2]: 0.000
(2, 4]: 0.800
(4+: 0.000

fbgemm_t9_bs4.pt
Avg # of indices: 99
Avg # of unique cols: 99
"""


def write(path, content):
    if path.suffix == ".npy":
        np.save(path, content)
    elif path.suffix == ".npz":
        np.savez(path, **content)
    else:
        path.write_text(content)
    return path


def write_tensors(path, content):
    torch = pytest.importorskip("torch")
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as stream:
        torch.save(content(torch), stream)
    return path


def test_rows_that_were_not_drawn_by_chance(tmp_path):
    """Of 100 rows drawn once and 50 twice, a Poisson distribution's mean is 1, and 100 of e * 100 weren't drawn."""
    drawn = read_index_pattern(write(tmp_path / "counts.csv", "draws,rows\n1,100\n2,50\n30,10\n")).recorded
    assert drawn.counts.tolist() == pytest.approx([10, np.e * 100])
    assert (drawn.shares[0] / drawn.shares[1]) == pytest.approx(30)


def test_rows_drawn_evenly_are_one_class(tmp_path):
    """1,000 rows drawn twice in the mean: 271 once, 271 twice, 180 three times, 90 four times, 36 five times."""
    counts = "draws,rows\n1,271\n2,271\n3,180\n4,90\n5,36\n6,12\n"
    drawn = read_index_pattern(write(tmp_path / "counts.csv", counts)).recorded
    assert drawn.expect_unique(2000) == pytest.approx(1000 * (1 - np.exp(-2)), rel=0.01)
    assert drawn.counts[-1] == pytest.approx(1000, rel=0.01)


def test_all_forms_tell_the_same(tmp_path):
    array = np.array(INDICES)
    files = [
        write(tmp_path / "a.npy", array),
        write(tmp_path / "a.npz", {"table": array}),
        write(tmp_path / "a.csv", "draws,rows\n3,1\n2,1\n1,1\n"),
        write(tmp_path / "b.npz", {"indices": array, "offsets": np.arange(7), "lengths": np.ones((1, 6), np.int64)}),
        write_tensors(tmp_path / "a.pt", lambda torch: torch.tensor(INDICES)),
        write_tensors(tmp_path / "a.pth", lambda torch: {"table": torch.tensor(INDICES)}),
        write_tensors(
            tmp_path / "a.pt.gz", lambda torch: (torch.tensor(INDICES), torch.arange(7), torch.ones(1, 6, dtype=int))
        ),
    ]
    unique = [read_index_pattern(str(file)).recorded.expect_unique(6) for file in files]
    assert unique == pytest.approx([unique[0]] * len(files))


def test_tables_are_told_apart_by_their_lengths(tmp_path):
    """The first table's four draws are of one row, the second one's two are of another."""
    content = {"indices": np.array([5, 5, 5, 5, 5, 5]), "offsets": np.arange(5), "lengths": np.array([[2, 2], [1, 1]])}
    drawn = read_index_pattern(write(tmp_path / "a.npz", content)).recorded
    assert drawn.tables == 2
    assert drawn.expect_most_frequent(100) == pytest.approx(100)


def test_three_tables_are_no_indices_with_lengths(tmp_path):
    """Two tables of eight draws of one row each, and one of eight different rows."""
    path = write_tensors(tmp_path / "a.pt", lambda torch: [torch.full((8,), 5), torch.full((8,), 5), torch.arange(8)])
    drawn = read_index_pattern(path).recorded
    assert drawn.tables == 3
    assert drawn.expect_unique(8) < 8


def test_shares_of_rows_and_draws(tmp_path):
    """Two rows drawn once and two four times, in two tables."""
    drawn = read_index_pattern(write(tmp_path / "locality_stats.txt", LOCALITY)).recorded
    assert drawn.tables == 2
    often = drawn.shares.max()
    assert drawn.counts[drawn.shares == often].tolist() == pytest.approx([2])
    assert often == pytest.approx(2 * 4 / 10, rel=0.01)


@pytest.mark.parametrize(("rows", "alpha", "draws"), [(10_000, 1.05, 20_000), (10_000, 0.0, 20_000), (1000, 0.5, 9000)])
def test_recorded_draws_tell_what_others_find(tmp_path, rows, alpha, draws):
    share = np.arange(1, rows + 1) ** -alpha
    drawn = np.random.default_rng(0).choice(rows, draws, p=share / share.sum())
    found = read_index_pattern(write(tmp_path / "a.npy", drawn)).get_distribution(rows)
    expected = get_distribution(rows, alpha)
    assert found.expect_unique(draws) == pytest.approx(np.unique(drawn).size, rel=0.05)
    for others in (draws // 10, 3 * draws):
        assert found.expect_unique(others) == pytest.approx(expected.expect_unique(others), rel=0.1)


def test_a_smaller_table_has_the_most_frequent_rows(tmp_path):
    found = read_index_pattern(write(tmp_path / "a.csv", "draws,rows\n30,2\n3,1000\n")).get_distribution(2)
    assert found.shares[found.counts > 0].tolist() == [0.5]
    assert found.expect_unique(1000) == pytest.approx(2)


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.npy", np.array([], np.int64), "indices-empty"),
        ("a.npy", np.array([0.5]), "indices-empty"),
        ("a.npy", np.array([-1, 2]), "indices-empty"),
        ("a.npz", {"offsets": np.arange(3)}, "indices-empty"),
        ("a.npz", {"indices": np.arange(5), "offsets": np.arange(3), "lengths": np.array([[1, 9]])}, "indices-empty"),
        ("a.csv", "draws,rows\n0,5\n", "indices-empty"),
        ("a.csv", "draws,rows\nnan,inf\n", "indices-empty"),
        ("a.csv", "draws,rows\n0.1,0.5\n", "indices-empty"),
        ("a.csv", "draws,rows\n3,10\n-1,5\n", "indices-empty"),
        ("a.csv", "draws,rows\n3,10\n,5\n", "indices-empty"),
        ("a.csv", "draws,rows\n1e308,1e308\n1,1\n", "indices-empty"),
        ("a.csv", f"draws,rows\n{1 << 40},{1 << 40}\n", "indices-empty"),
        (
            "a.npz",
            {"indices": np.arange(10), "offsets": np.arange(3), "lengths": np.array([[20], [-10]])},
            "indices-empty",
        ),
        (
            "a.npz",
            {"indices": np.arange(4), "offsets": np.arange(3), "lengths": np.array([[3.5], [0.5]])},
            "indices-empty",
        ),
        (
            "a.npz",
            {"indices": np.arange(4), "offsets": np.arange(3), "lengths": np.ones((1, 2, 2), int)},
            "indices-empty",
        ),
        ("a.npz", {"indices": np.array([1 << 50])}, "indices-empty"),
        ("a.npy", np.array([1, 2**63], np.uint64), "indices-empty"),
        ("a.txt", LOCALITY.replace("indices: 10", "indices: 0").replace("cols: 4", "cols: 0"), "indices-empty"),
        ("a.txt", LOCALITY.replace("cols: 4", "cols: 40"), "indices-empty"),
        ("a.txt", LOCALITY.replace("indices: 10", "indices: 1" + 5000 * "0"), "indices-empty"),
        ("a.txt", LOCALITY.replace("fbgemm_t2", "fbgemm_t0"), "indices-empty"),
        ("a.txt", LOCALITY.replace("fbgemm_t2", "fbgemm_t20000"), "indices-empty"),
        ("a.txt", LOCALITY.replace("0.800", "7.000"), "indices-empty"),
        ("a.txt", LOCALITY.replace("0.800", "0.8.0"), "indices-unreadable"),
        ("a.csv", "index\n5\n", "indices-unreadable"),
        ("a.csv", "", "indices-unreadable"),
        ("a.txt", "nothing", "indices-empty"),
        ("a.pt", "no tensor", "indices-unreadable"),
        ("a.pt.gz", "no archive", "indices-unreadable"),
        ("a.bin", "5", "indices-unreadable"),
        ("indices", "5", "indices-unreadable"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, content, code):
    with pytest.raises(IndexFileError) as caught:
        read_index_pattern(write(tmp_path / name, content))
    assert caught.value.code == code


def refuse(path):
    with pytest.raises(IndexFileError) as caught:
        read_index_pattern(path)
    return caught.value.code


def test_objects_are_never_unpickled(tmp_path):
    array = np.array([print], dtype=object)
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    np.savez(tmp_path / "b.npz", table=array)
    assert refuse(tmp_path / "a.npy") == refuse(tmp_path / "b.npz") == "indices-empty"


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 40, 1 << 40)])
def test_an_array_is_as_long_as_its_header_says(tmp_path, shape):
    content = BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<i8", "fortran_order": False, "shape": shape})
    (tmp_path / "a.npy").write_bytes(content.getvalue() + bytes(80))
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("table.npy", content.getvalue() + bytes(80))
    assert refuse(tmp_path / "a.npy") == refuse(tmp_path / "b.npz") == "indices-empty"


def test_fortran_order_is_read(tmp_path):
    lengths = np.asfortranarray([[2, 0], [1, 3]])
    content = {"indices": np.array([5, 5, 6, 7, 7, 7]), "offsets": np.arange(5), "lengths": lengths}
    assert read_index_pattern(write(tmp_path / "a.npz", content)).recorded.tables == 2


def test_elements_that_are_not_stored(tmp_path):
    """A tensor of 1 kB names one element 2^40 times; meta and sparse tensors store none."""
    for number, content in enumerate(
        (
            lambda torch: torch.zeros(1, dtype=torch.int64).expand(1 << 40),
            lambda torch: {"table": torch.arange(4).expand(1000, 4)},
            lambda torch: torch.zeros(1 << 40, dtype=torch.int64, device="meta"),
            lambda torch: torch.sparse_coo_tensor([[0]], [1], (1 << 40,), check_invariants=True),
            lambda torch: {"table": 5},
        )
    ):
        assert refuse(write_tensors(tmp_path / f"{number}.pt", content)) == "indices-empty"


def test_what_is_no_tensor_says_nothing_of_pickles(tmp_path):
    path = write_tensors(tmp_path / "a.pt", lambda torch: print)
    with pytest.raises(IndexFileError) as caught:
        read_index_pattern(path)
    assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.pt", "a.pt.gz", "a.csv", "a.txt"])
def test_only_regular_files_are_read(tmp_path, name):
    (tmp_path / f"zeros-{name}").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / f"pipe-{name}")
    (tmp_path / f"folder-{name}").mkdir()
    codes = {refuse(tmp_path / f"{kind}-{name}") for kind in ("zeros", "pipe", "folder")}
    assert codes == {"indices-unreadable"}


def test_a_file_unpacks_to_little(tmp_path, monkeypatch):
    """Zeros pack to a thousandth: the sizes unpacked count, before anything is unpacked."""
    monkeypatch.setattr("tracekit.capturing.index_files.MIN_UNPACKED_BYTES", 1 << 16)
    np.savez_compressed(tmp_path / "a.npz", table=np.zeros(1 << 20, np.int64))
    (tmp_path / "a.pt.gz").write_bytes(gzip.compress(bytes(1 << 23)))
    assert refuse(tmp_path / "a.npz") == refuse(tmp_path / "a.pt.gz") == "indices-too-large"


def test_more_than_half_of_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tracekit.capturing.index_files.find_memory_bytes", lambda: 8000)
    assert refuse(write(tmp_path / "a.npy", np.arange(1000))) == "indices-too-large"


def test_rows_drawn_twice_but_for_one(tmp_path):
    """By a Poisson distribution they would be e^200 rows."""
    drawn = read_index_pattern(write(tmp_path / "a.csv", "draws,rows\n1,1\n2,100\n")).recorded
    assert drawn.counts.tolist() == [101]
    assert drawn.shares.tolist() == pytest.approx([1 / 101])


def test_a_missing_file(tmp_path):
    with pytest.raises(IndexFileError) as caught:
        read_index_pattern(tmp_path / "none.npy")
    assert caught.value.code == "indices-unreadable"


def test_either_an_exponent_or_a_file():
    with pytest.raises(RequestError) as caught:
        tk.report("sample_traces/synthetic_transformer_train.json.gz", zipf=1.0, indices="a.npy")
    assert caught.value.code == "indices-given-twice"
