"""Define the errors that predictors raises.

PredictorError
├── UnknownGpuError      (LookupError)  no GPU of that name or with those properties
├── AmbiguousGpuError    (LookupError)  several GPUs match; ``candidates`` names them
├── InvalidGpuFileError  (ValueError)   a key of a GPU's TOML file is missing or wrong
├── KernelTableError     (ValueError)   a column of the kernel table is missing or wrong
└── WeightsError         (ValueError)   no readable fitted weights
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import ClassVar

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
        code: Stable name of the kind of error, for programs and tests.
        message: What is wrong.
        hint: What to try, or where to look.
    """

    code: ClassVar[str] = "predictor-error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".rstrip())
        self.message = message
        self.hint = hint


class UnknownGpuError(PredictorError, LookupError):
    """No known GPU has that name, or the properties that a trace records."""

    code = "gpu-unknown"

    @classmethod
    def from_name(cls, name: str, known: Mapping[str, str]) -> UnknownGpuError:
        """Build the error for a name that matches no GPU.

        Args:
            name: Name that the user asked for.
            known: Maps every spelling to suggest from to its slug.
        """
        slugs = {spelling.lower(): slug for spelling, slug in known.items()}
        close = difflib.get_close_matches(name.lower(), slugs, n=8, cutoff=0.6)
        shared = {spelling: _count_shared(name.lower(), spelling) for spelling in slugs}
        most = max(shared.values(), default=0)
        if 2 * most > len(name):  # the word before what sets variants apart
            close = [*sorted(spelling for spelling in slugs if shared[spelling] == most), *close]
        meant = list(dict.fromkeys(slugs[spelling] for spelling in close))[:3]
        near = f" Did you mean {', '.join(meant)}?" if meant else ""
        others = "; give several GPUs each by itself" if "," in name else ""
        hint = f"`tracekit gpus` lists all; a path to a .toml file adds one{others}."
        return cls(f"unknown GPU {name!r}.{near}", hint)

    @classmethod
    def from_properties(cls, name: str, sms: int, memory_bytes: int) -> UnknownGpuError:
        """Build the error for a device in a trace whose properties match no known GPU.

        Args:
            name: Device name of the driver, which may be empty.
            sms: SM or CU count.
            memory_bytes: Memory size.
        """
        if "laptop" in name.lower():
            reason = "; how fast a laptop's is depends on the power that its maker allows"
        else:
            reason = "; it may be a slice of a GPU (MIG, vGPU, a compute partition)" if sms else ""
        return cls(
            f"no known GPU fits the device {name!r} with {sms} SMs and {memory_bytes / 2**30:.1f} GiB{reason}.",
            "Name the GPU, or describe it in a .toml file.",
        )


class AmbiguousGpuError(PredictorError, LookupError):
    """Several GPUs match a name or the properties in a trace.

    Attributes:
        candidates: Slugs of the GPUs that match.
    """

    code = "gpu-ambiguous"

    def __init__(self, query: str, candidates: Iterable[str]) -> None:
        self.candidates = tuple(candidates)
        super().__init__(f"GPU {query!r} may be {', '.join(self.candidates)}.", "Name one of them.")


class InvalidGpuFileError(PredictorError, ValueError):
    """A TOML file of a GPU is unusable.

    Attributes:
        path: The file.
    """

    code = "gpu-file-invalid"

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        super().__init__(f"GPU file {path}: {problem}")


class KernelTableError(PredictorError, ValueError):
    """A column of the kernel table is missing, or holds an unknown family or dtype or a wrong type."""

    code = "kernel-table-invalid"


class WeightsError(PredictorError, ValueError):
    """The folder holds no fitted weights, or none that can be read."""

    code = "weights-unreadable"


def _count_shared(one: str, other: str) -> int:
    """Count the characters that two names begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
