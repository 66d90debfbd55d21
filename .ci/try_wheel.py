"""Install the wheel of a folder into a fresh environment and try its commands: ``python .ci/try_wheel.py dist``."""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

SAMPLE = Path(__file__).parents[1] / "sample_traces" / "synthetic_transformer_train.json.gz"
MAX_MB = 340
"""Of all that the wheel brings, without pip."""
COMMANDS = (
    ("demo",),
    ("predict", SAMPLE, "--gpu", "h100-sxm"),
    ("predict", SAMPLE, "--gpu", "h100-sxm", "-q", "-o", "page.html"),
    ("report", SAMPLE, "-q", "-o", "report.json"),
    ("doctor", SAMPLE),
    ("export", SAMPLE, "-o", "timeline.json.gz"),
    ("redact", SAMPLE, "-o", "redacted.json.gz"),
    ("gpus",),
)
PREDICT = """
import sys
import tracekit as tk
from tracekit.compiled.units import find_prebuilt
from tracekit.ingest.native import describe_unit

prediction = tk.predict(tk.load(sys.argv[1], cache=False), gpu="h100-sxm")["h100-sxm"]
assert prediction.speedup > 1
assert find_prebuilt(describe_unit())
assert not {"llvmlite", "numba", "pandas", "plotly", "torch"} & set(sys.modules)
"""


def main(folder: Path) -> None:
    """Try the only wheel of a folder, with the Python that runs this."""
    (wheel,) = folder.glob("*.whl")
    assert not wheel.name.endswith("-any.whl"), "the loops weren't compiled"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        bare_bytes = create_environment(Path(place))
        scripts = Path(place) / ("Scripts" if os.name == "nt" else "bin")
        python = str(scripts / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], check=True)
        brought_mb = (measure_bytes(Path(place)) - bare_bytes) / 1e6
        print(f"{wheel.name}: {brought_mb:.0f} MB with what it requires")
        assert brought_mb < MAX_MB
        command = str(scripts / "tracekit")
        for arguments in COMMANDS:
            subprocess.run([command, *map(str, arguments)], check=True, cwd=place)
        subprocess.run([python, "-c", PREDICT, str(SAMPLE)], check=True, cwd=place)
        if sys.platform != "linux":
            served = subprocess.run([command, "serve"], capture_output=True, text=True, check=False)
            assert (served.returncode, served.stderr.count("\n")) == (1, 1), served.stderr


def create_environment(place: Path) -> int:
    """Create a virtual environment; return its size."""
    venv.create(place, with_pip=True)
    return measure_bytes(place)


def measure_bytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
