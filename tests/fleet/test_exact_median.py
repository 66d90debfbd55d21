"""Medians over ranks equal those of all numbers at once, bit for bit."""

import numpy as np
import polars as pl
import pytest

from tracekit.fleet.job_errors import compute_medians, find_bounds, make_cells, select_between

KEYS = ("law", "named")


def merge_medians(ranks: list[pl.DataFrame]) -> tuple[pl.DataFrame, int]:
    """Return the medians, and the most numbers that a rank sent in both rounds."""
    cells = [make_cells(one, KEYS) for one in ranks]
    bounds = find_bounds(pl.concat(cells), KEYS)
    between = [select_between(one, bounds, KEYS) for one in ranks]
    sent = max(one.height for one in cells) + max(one.height for one in between)
    return compute_medians(pl.concat(between), bounds, KEYS), sent


@pytest.mark.parametrize("seed", range(20))
def test_as_of_all_numbers(seed):
    draw = np.random.default_rng(seed)
    ranks = [
        pl.DataFrame(
            {
                "law": draw.choice(["gemm", "norm", None], count).tolist(),
                "named": draw.random(count) < 0.5,
                # Some are alike, and many at the end of what counts.
                "number": np.clip(draw.normal(rank / 8, 1, count).round(seed % 4 + 1), -0.7, 0.7),
            },
            schema_overrides={"law": pl.String},
        )
        for rank, count in enumerate(draw.integers(0, 400, 8).tolist())
    ]
    found, _ = merge_medians(ranks)
    expected = pl.concat(ranks).group_by(KEYS).agg(median=pl.col("number").median(), count=pl.len().cast(pl.Int64))
    assert found.sort(KEYS).equals(expected.sort(KEYS))


def test_a_rank_sends_few_of_its_numbers():
    draw = np.random.default_rng(46)
    ranks = [pl.DataFrame({"law": "gemm", "named": True, "number": draw.normal(size=20_000)}) for _ in range(8)]
    found, sent = merge_medians(ranks)
    assert found["median"].item() == pl.concat(ranks)["number"].median()
    assert sent < 1500
