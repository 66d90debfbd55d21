"""Build wheels with the inner loops as machine code, so that neither numba nor LLVM is needed where they run.

Without a C compiler, whose linker makes the library, the wheel is one for every platform and requires numba instead;
and so does an editable installation, whose loops may change.
"""

import importlib
import platform
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.build import *  # noqa: F403  # this module is the build backend: hatchling's, with more to build wheels
from hatchling.build import __all__ as __all__
from hatchling.build import get_requires_for_build_wheel as _get_requires_for_build_wheel
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
JIT: list[str] = PROJECT["optional-dependencies"]["jit"]
LINUX_TAG = "manylinux_2_17_{0}.manylinux2014_{0}.musllinux_1_1_{0}"
"""The library calls memset at most, so it runs with any C library."""
MAC_TAGS = {"arm64": "macosx_11_0_arm64", "x86_64": "macosx_10_13_x86_64"}
WINDOWS_TAGS = {"AMD64": "win_amd64", "ARM64": "win_arm64"}


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Return what building a wheel needs: to compile the loops, the modules that hold them are imported."""
    return [*_get_requires_for_build_wheel(config_settings), *PROJECT["dependencies"], *JIT, "setuptools>=75"]


class LoopsHook(BuildHookInterface[Any]):
    """Add the library of loops to a wheel, and name the platform that it is for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the loops, or make the wheel require what compiles them."""
        self._folder = tempfile.TemporaryDirectory()
        library = None if version == "editable" else self._try_build()
        if library is None:
            build_data["dependencies"].extend(JIT)
            return
        build_data["force_include"][str(library)] = f"tracekit/compiled/{library.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{name_platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the library outside of the wheel."""
        self._folder.cleanup()

    def _try_build(self) -> Path | None:
        sys.path.insert(0, str(ROOT))
        try:
            from tracekit.compiled.library import build_library

            return build_library(find_units(), Path(self._folder.name))
        except (ImportError, OSError) as error:
            self.app.display_warning(f"The inner loops aren't compiled, so numba is required instead: {error}")
            return None
        finally:
            sys.path.remove(str(ROOT))


def find_units() -> list[Any]:
    """Return all units of loops."""
    from tracekit.compiled import CompiledLoop
    from tracekit.ingest.native import describe_unit

    files = [path for path in (ROOT / "tracekit").rglob("*.py") if "\n@compile_lazily" in path.read_text("utf-8")]
    modules = [
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)) for path in sorted(files)
    ]
    loops = [value for module in modules for value in vars(module).values() if isinstance(value, CompiledLoop)]
    return [describe_unit(), *(loop.describe_unit() for loop in dict.fromkeys(loops))]


def name_platform() -> str:
    """Return the platform's tag in the name of a wheel."""
    machine = platform.machine()
    if sys.platform == "linux":
        return LINUX_TAG.format(machine)
    return (MAC_TAGS if sys.platform == "darwin" else WINDOWS_TAGS)[machine]
