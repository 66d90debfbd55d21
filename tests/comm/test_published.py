"""Against what others measured and published: nccl-tests of one to 248 nodes."""

import polars as pl

from tests.validation.studies.collectives.published_results import LONG_BYTES, predict_published


def test_sound_measurements_of_several_nodes_are_near():
    several = predict_published().filter(pl.col("sound") & (pl.col("nodes") > 1))
    off = several.select("bytes", off=pl.col("error").abs().exp() - 1)
    assert off.filter(pl.col("bytes") >= LONG_BYTES)["off"].median() < 0.15
    assert off.filter(pl.col("bytes") < LONG_BYTES)["off"].median() < 0.45
    assert several.height >= 90


def test_the_intervals_hold_most_of_the_sound_measurements():
    sound = predict_published().filter("sound")
    assert sound["inside"].mean() >= 0.9
    assert sound.filter((pl.col("nodes") > 1) & (pl.col("bytes") < LONG_BYTES))["inside"].mean() >= 0.85


def test_machines_with_faults_are_slower_than_predicted():
    faulty = predict_published().filter(~pl.col("sound"))
    assert (faulty["error"] < 0).all()
