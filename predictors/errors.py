"""What can go wrong in predictors.

PredictorError
├── UnknownGpuError      (LookupError)  no GPU of that name or with those numbers
├── AmbiguousGpuError    (LookupError)  several GPUs fit; `candidates` names them
├── InvalidGpuFileError  (ValueError)   a GPU's TOML file lacks a key, or has a wrong one
├── KernelTableError     (ValueError)   the kernel table lacks a column, or has a wrong one
└── WeightsError         (ValueError)   no readable fitted weights
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = [
    "AmbiguousGpuError",
    "InvalidGpuFileError",
    "KernelTableError",
    "PredictorError",
    "UnknownGpuError",
    "WeightsError",
]


class PredictorError(Exception):
    """Base of every error that predictors raises on purpose.

    Attributes:
        message: what is wrong.
        hint: where to look or what to try, on the command line.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".rstrip())
        self.message = message
        self.hint = hint


class UnknownGpuError(PredictorError, LookupError):
    """No GPU of that name, or none whose numbers are those of a trace."""

    @classmethod
    def from_name(cls, name: str, known: Mapping[str, str]) -> UnknownGpuError:
        """The error for a name that nothing resolves to.

        Args:
            name: what was asked for.
            known: slug by every spelling to suggest from.
        """
        slugs = {spelling.lower(): slug for spelling, slug in known.items()}
        close = difflib.get_close_matches(name.lower(), slugs, n=8, cutoff=0.6)
        meant = list(dict.fromkeys(slugs[spelling] for spelling in close))[:3]
        near = f" Did you mean {', '.join(meant)}?" if meant else ""
        others = "; give several each by itself: --gpu a100 --gpu h100" if "," in name else ""
        hint = f"`tracekit gpus` lists all; a path to a .toml file adds one{others}."
        return cls(f"unknown GPU {name!r}.{near}", hint)

    @classmethod
    def from_properties(cls, name: str, sms: int, memory_bytes: int) -> UnknownGpuError:
        """The error for a device in a trace whose numbers no known GPU has.

        Args:
            name: the driver's name of the device, which may be empty.
            sms: its SM or CU count.
            memory_bytes: its memory.
        """
        if "laptop" in name.lower():
            reason = "; how fast a laptop's is depends on the power that its maker allows"
        else:
            reason = "; it may be a slice of a GPU (MIG, vGPU, a compute partition)" if sms else ""
        return cls(
            f"no known GPU fits the device {name!r} with {sms} SMs and {memory_bytes / 2**30:.1f} GiB{reason}.",
            "Name the GPU with --source-gpu, or describe it in a .toml file.",
        )


class AmbiguousGpuError(PredictorError, LookupError):
    """Several GPUs fit a name or a trace's numbers.

    Attributes:
        candidates: slugs of the GPUs that fit.
    """

    def __init__(self, query: str, candidates: Iterable[str]) -> None:
        self.candidates = tuple(candidates)
        super().__init__(f"GPU {query!r} may be {', '.join(self.candidates)}.", "Name one of them.")


class InvalidGpuFileError(PredictorError, ValueError):
    """A GPU's TOML file that cannot be used.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        super().__init__(f"GPU file {path}: {problem}")


class KernelTableError(PredictorError, ValueError):
    """The kernel table lacks a column, or holds a family, dtype or type that nobody knows."""


class WeightsError(PredictorError, ValueError):
    """No fitted weights where they were looked for, or none that can be read."""
