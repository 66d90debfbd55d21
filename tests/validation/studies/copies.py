"""Holds the memory rates of GPUs against published ones of PyTorch's copies, to which nothing was fitted.

python -m tests.validation.studies.copies

Source: chsasank/device-benchmarks at 7ccc883, README.md: the best of copies of 4 to 380 MB, timed by the host. Figures
above the printed rate of the memory are left out.
"""

from statistics import median

import polars as pl

from predictors import load_gpu, predict
from tests.validation.tables import print_table

COPIED = 1 << 28
"""Bytes; read and written."""
PUBLISHED_GBPS = {
    "t4": 240, "l4": 235, "v100-pcie-32gb": 766, "a10": 469, "a100-pcie-80gb": 1490, "h100-pcie": 1630, "rtx-3060": 330,
    "rtx-3090": 831, "rtx-4060-ti-16gb": 234, "rtx-4070-super": 411, "rtx-4070-ti-super": 602, "rtx-4090": 912,
    "rtx-5070-ti": 762,
}  # fmt: skip
"""Of a memory read and written at once."""


def main() -> None:
    """Prints a row for each GPU, and the errors' medians."""
    copy = pl.DataFrame({"family": ["memcpy"], "bytes": [COPIED], "copy_kind": ["DtoD"]})
    rates = {gpu: 2 * COPIED / predict(copy, gpu)["time_us"].item() / 1e3 for gpu in PUBLISHED_GBPS}
    errors = {gpu: rate / PUBLISHED_GBPS[gpu] - 1 for gpu, rate in rates.items()}
    print_table(
        "| GPU | ECC | datasheet, GB/s | published copies | of the datasheet | predicted | error |",
        (
            f"| {gpu} | {'yes' if load_gpu(gpu).inline_ecc else ''} | {load_gpu(gpu).bandwidth_gbps:.0f} "
            f"| {PUBLISHED_GBPS[gpu]} | {PUBLISHED_GBPS[gpu] / load_gpu(gpu).bandwidth_gbps:.2f} "
            f"| {rates[gpu]:.0f} | {error:+.0%} |"
            for gpu, error in errors.items()
        ),
    )
    print_table(
        "| error, median | of it absolute | worst |",
        [
            f"| {median(errors.values()):+.0%} | {median(map(abs, errors.values())):.0%} "
            f"| {max(errors.values(), key=abs):+.0%} |"
        ],
    )


if __name__ == "__main__":
    main()
