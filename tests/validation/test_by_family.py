"""Means over GPUs of the errors of fits that left something out."""

import polars as pl

from tests.validation.studies.kernels.by_family import list_means


def row(gpu: str, situation: str, median: float) -> dict[str, object]:
    """Errors of one GPU's bf16 GEMMs; the 90th percentile is twice the median, the law is off by one more."""
    model = {"model_median": median, "model_p90": 2 * median, "law_median": median + 1, "law_p90": 2 * median + 1}
    other = {f"{name}_{level}": 50.0 for name in ("roofline", "peak_ratio") for level in ("median", "p90")}
    return {"law": "gemm half", "gpu": gpu, "situation": situation, **model, **other}


def test_a_gpu_alone_in_its_class_counts_as_left_out_with_it() -> None:
    errors = pl.DataFrame(
        [
            *(row("l40s", "base", 3.0), row("l40s", "class", 8.0), row("l40s", "new", 12.0)),
            *(row("b200", "base", 5.0), row("b200", "new", 10.0), row("b200", "calibrated", 4.0)),
        ]
    )
    found = {title: gemms for title, gemms, *_ in list_means(errors)}
    assert found["in base"] == "4.0 / 8"
    assert found["GPU held out"] == "9.0 / 18"
    assert found["its class held out"] == "11.0 / 22"
    assert found["GPU held out, 30 kernels measured"] == "4.0 / 8"
    assert found["GPU held out, law alone"] == "10.0 / 19"
    assert {cell for _, _, *others in list_means(errors) for cell in others} == {"–"}
