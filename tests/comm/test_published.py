"""Against what others measured and published: nccl-tests and rccl-tests of one to 248 nodes."""

from pathlib import Path

import polars as pl

from tracekit.comm import load_cluster, predict

LONG_BYTES = 2**25
PUBLISHED = Path(__file__).with_name("published.csv")


def compared() -> pl.DataFrame:
    """The published rows with the predicted ``time_us``, and ``ratio``: predicted over measured time."""
    rows = pl.read_csv(PUBLISHED).with_columns(dtype=pl.lit("float"))
    parts = []
    for row in rows.partition_by("cluster", "algorithm", maintain_order=True):
        cluster, forced = load_cluster(row["cluster"][0]), row["algorithm"][0]
        found = predict(row.drop("busbw_gbps", "algorithm"), cluster, algorithm=forced)
        parts.append(found.with_columns(measured_gbps=row["busbw_gbps"], ratio=row["busbw_gbps"] / found["busbw_gbps"]))
    return pl.concat(parts)


def test_sound_measurements_of_several_nodes_are_near():
    several = compared().filter(pl.col("sound") & (pl.col("nodes") > 1))
    off = several.select("bytes", off=pl.col("ratio").log().abs().exp() - 1)
    assert off.filter(pl.col("bytes") >= LONG_BYTES)["off"].median() < 0.17
    assert off.filter(pl.col("bytes") < LONG_BYTES)["off"].median() < 0.5
    assert several.height >= 90


def test_the_intervals_hold_most_of_the_sound_measurements():
    sound = compared().filter("sound")
    measured_us = sound["time_us"] / sound["ratio"]
    inside = (sound["low_us"] <= measured_us) & (measured_us <= sound["high_us"])
    short = (sound["nodes"] > 1) & (sound["bytes"] < LONG_BYTES)
    assert inside.mean() >= 0.9
    assert inside.filter(short).mean() >= 0.85


def test_machines_with_faults_are_slower_than_predicted():
    faulty = compared().filter(~pl.col("sound"))
    assert (faulty["ratio"] < 1).all()
