"""Log a GPU's clocks, power and temperature until ended: ``python -m tests.validation.on_gpu.clocks OUT.csv``."""

import csv
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

PERIOD_S = 0.05
Reading = Callable[[], float]


def main() -> int:
    """Log until this process or its parent ends."""
    try:
        readings = open_readings()
    except ImportError:
        print("on_gpu: no clocks and no power are logged; pip install nvidia-ml-py", file=sys.stderr)
        return 1
    parent = os.getppid()
    with Path(sys.argv[1]).open("w", newline="", buffering=1) as file:
        writer = csv.writer(file)
        writer.writerow(["time_s", *readings])
        while os.getppid() == parent:
            writer.writerow([f"{time.time():.3f}", *(read_or_leave(reading) for reading in readings.values())])
            time.sleep(PERIOD_S)
    return 0


def read_or_leave(reading: Reading) -> str:
    """Return a reading as text; empty where the GPU doesn't tell it."""
    try:
        return f"{reading():.6g}"
    except Exception:
        return ""


def open_readings() -> dict[str, Reading]:
    """Return what is read of the first GPU that PyTorch may use.

    Raises:
        ImportError: nvidia-ml-py isn't installed.
    """
    import pynvml as nvml

    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(int(os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or 0))
    return {
        "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        "power_w": lambda: read_instant_power_mw(gpu) / 1e3,
        "mean_power_w": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
        "energy_j": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3 % 1e6,
        "celsius": lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
        "busy_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    }


def read_instant_power_mw(gpu: object) -> float:
    """Read the power now, of which the usual reading is a mean over a second on some GPUs."""
    from pynvml import NVML_FI_DEV_POWER_INSTANT, nvmlDeviceGetFieldValues

    return float(nvmlDeviceGetFieldValues(gpu, [NVML_FI_DEV_POWER_INSTANT])[0].value.uiVal)


if __name__ == "__main__":
    sys.exit(main())
