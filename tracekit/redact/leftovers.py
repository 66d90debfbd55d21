"""Check that what is to be shared holds nothing private any more."""

import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tracekit.errors import OutputError
from tracekit.messages.recordings import SHARED_FILE_PRIVATE
from tracekit.redact.patterns import HOME_PATTERN, make_name_pattern


def check_shared_files(files: Mapping[str, Path], names: Iterable[str], directories: Iterable[Path]) -> None:
    """Refuse files in which something private is left.

    Args:
        files: The files by the names under which they are shared.
        names: Names of hosts and users.
        directories: Directories of the inputs on this machine.

    Raises:
        OutputError: A file holds a name, one of the directories or somebody's home directory.
    """
    paths = "|".join(re.escape(str(one)) for one in directories if one.parent != one)
    patterns = {
        "the name of a host or user": make_name_pattern(names),
        "the path of an input": rf"(?:{paths})(?![\w.-])" if paths else "",
        "somebody's home directory": HOME_PATTERN.pattern,
    }
    compiled = {kind: re.compile(pattern) for kind, pattern in patterns.items() if pattern}
    for name, path in files.items():
        found = {kind for line in _read_lines(path) for kind, pattern in compiled.items() if pattern.search(line)}
        if found:
            raise OutputError(SHARED_FILE_PRIVATE(name=name, kinds=sorted(found)))


def _read_lines(path: Path) -> Iterator[str]:
    with path.open("rb") as packed, gzip.open(packed) if path.suffix == ".gz" else packed as lines:
        for line in lines:
            yield line.decode(errors="replace")
