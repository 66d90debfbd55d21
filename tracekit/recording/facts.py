"""Collect facts about the machine and PyTorch's settings that a prediction needs and that no trace records.

Only what determines the time of a kernel, a launch or a message is collected: no host name, user, path or address.
"""

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import torch

Facts = dict[str, object]

SCHEMA_VERSION = 1
# Environment variables that affect speed; other variables may hold names and addresses.
SPEED_VARIABLES = (
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
COMMAND_TIMEOUT_S = 10


def collect_facts() -> Facts:
    """Collect all facts, as plain data for the trace's metadata."""
    return {
        "schema": SCHEMA_VERSION,
        "gpu": _read_gpu(),
        "host": _read_host(),
        "link": _read_topology(),
        "software": _read_software(),
    }


def reset_peak_memory() -> None:
    """Reset the peak of :func:`read_peak_memory`."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def read_peak_memory() -> Facts:
    """Return the program's peak GPU memory since :func:`reset_peak_memory`, in bytes."""
    if not torch.cuda.is_available():
        return {}
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "total_bytes": torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory,
    }


def _read_gpu() -> Facts:
    if not torch.cuda.is_available():
        return {}
    index = torch.cuda.current_device()
    facts = torch.cuda.get_device_properties(index)
    return {
        "name": facts.name,
        "sms": facts.multi_processor_count,
        "memory_bytes": facts.total_memory,
        "compute_capability": f"{facts.major}.{facts.minor}",
        **_query_driver(getattr(facts, "uuid", None)),
    }


def _query_driver(uuid: object) -> Facts:
    """Query clocks, power limit and driver version from ``nvidia-smi``; empty if it isn't installed.

    Args:
        uuid: UUID of the GPU; ``None`` before PyTorch 2.5, which doesn't provide it.
    """
    if uuid is None:
        return {}
    line = _run_command(
        "nvidia-smi", f"--id=GPU-{uuid}", f"--query-gpu={','.join(NVIDIA_FIELDS)}", "--format=csv,noheader"
    )
    values = [value.strip() for value in line.split(",")]
    return dict(zip(NVIDIA_FIELDS, values, strict=True)) if len(values) == len(NVIDIA_FIELDS) else {}


def _read_host() -> Facts:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _read_cpu_name(),
        "cores": os.cpu_count(),
        "usable_cores": usable,
        "system": platform.system(),
        "machine": platform.machine(),
    }


def _read_cpu_name() -> str:
    listing = Path("/proc/cpuinfo")
    if not listing.is_file():
        return platform.processor()
    names = (
        line.partition(":")[2].strip()
        for line in listing.read_text(encoding="utf-8").splitlines()
        if "model name" in line
    )
    return next(names, platform.processor())


def _read_topology() -> Facts:
    """Return how the GPUs of this machine are connected, as ``nvidia-smi topo -m`` prints it."""
    facts: Facts = {"gpus": torch.cuda.device_count(), "local_world_size": os.environ.get("LOCAL_WORLD_SIZE")}
    return facts | ({"topology": _run_command("nvidia-smi", "topo", "-m")} if torch.cuda.device_count() > 1 else {})


def _read_software() -> Facts:
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
        "variables": dict(_iter_variables()),
    }


def _has_nccl() -> bool:
    """Return whether PyTorch has NCCL; builds for Windows don't."""
    return torch.cuda.is_available() and torch.distributed.is_available() and torch.distributed.is_nccl_available()


def _iter_variables() -> Iterator[tuple[str, str]]:
    for name in SPEED_VARIABLES:
        if name in os.environ:
            yield name, os.environ[name]


def _run_command(*command: str) -> str:
    """Return what a command prints; empty if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
