"""What a prediction wants to know about the machine and PyTorch's settings, and no trace tells.

No host name, user, path or address: only what decides how long a kernel, a launch or a message takes.
"""

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import torch

Facts = dict[str, object]

SCHEMA = 1
# Settings that change speed; other variables may hold names and addresses.
VARIABLES = (
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "HIP_FORCE_DEV_KERNARG",
    "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_CROSS_NIC", "NCCL_IB_DISABLE", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS",
    "NCCL_NET_GDR_LEVEL", "NCCL_NTHREADS", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO",
    "NCCL_SHM_DISABLE", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_NCCL_AVOID_RECORD_STREAMS", "TORCH_NCCL_HIGH_PRIORITY",
)  # fmt: skip
NVIDIA_FIELDS = (
    "driver_version", "clocks.max.sm", "clocks.max.mem", "clocks.sm", "power.limit", "power.max_limit",
    "ecc.mode.current", "pcie.link.gen.max", "pcie.link.width.max", "temperature.gpu", "clocks_event_reasons.active",
)  # fmt: skip
LONGEST_S = 10


def collect() -> Facts:
    """All of them, as plain data for the trace's metadata."""
    return {"schema": SCHEMA, "gpu": _gpu(), "host": _host(), "link": _link(), "software": _software()}


def forget_peak() -> None:
    """From here on :func:`memory` counts anew."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def memory() -> Facts:
    """The most that the program has taken of the GPU's memory since :func:`forget_peak`, in bytes."""
    if not torch.cuda.is_available():
        return {}
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "total_bytes": torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory,
    }


def _gpu() -> Facts:
    if not torch.cuda.is_available():
        return {}
    index = torch.cuda.current_device()
    facts = torch.cuda.get_device_properties(index)
    return {
        "name": facts.name,
        "sms": facts.multi_processor_count,
        "memory_bytes": facts.total_memory,
        "compute_capability": f"{facts.major}.{facts.minor}",
        **_asked_of_driver(getattr(facts, "uuid", None)),
    }


def _asked_of_driver(uuid: object) -> Facts:
    """Clocks, power limit and driver as ``nvidia-smi`` tells them; nothing where it isn't there.

    Args:
        uuid: Which GPU; ``None`` before PyTorch 2.5, which doesn't tell.
    """
    if uuid is None:
        return {}
    line = _output("nvidia-smi", f"--id=GPU-{uuid}", f"--query-gpu={','.join(NVIDIA_FIELDS)}", "--format=csv,noheader")
    values = [value.strip() for value in line.split(",")]
    return dict(zip(NVIDIA_FIELDS, values, strict=True)) if len(values) == len(NVIDIA_FIELDS) else {}


def _host() -> Facts:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "usable_cores": usable,
        "system": platform.system(),
        "machine": platform.machine(),
    }


def _cpu_name() -> str:
    listing = Path("/proc/cpuinfo")
    if not listing.is_file():
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in listing.read_text().splitlines() if "model name" in line)
    return next(names, platform.processor())


def _link() -> Facts:
    """How the GPUs of this machine are joined, as ``nvidia-smi topo -m`` draws it."""
    facts: Facts = {"gpus": torch.cuda.device_count(), "local_world_size": os.environ.get("LOCAL_WORLD_SIZE")}
    return facts | ({"topology": _output("nvidia-smi", "topo", "-m")} if torch.cuda.device_count() > 1 else {})


def _software() -> Facts:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": torch.backends.cudnn.version(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if _has_nccl() else None,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "variables": dict(_variables()),
    }


def _has_nccl() -> bool:
    """PyTorch for Windows has none."""
    return torch.cuda.is_available() and torch.distributed.is_available() and torch.distributed.is_nccl_available()


def _variables() -> Iterator[tuple[str, str]]:
    for name in VARIABLES:
        if name in os.environ:
            yield name, os.environ[name]


def _output(*command: str) -> str:
    """What a command prints; blank where it isn't there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
