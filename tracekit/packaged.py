"""What comes along with the package: the documentation's pages with what they say of a message, and sample traces."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from tracekit.errors import TracekitError
from tracekit.messages import Template
from tracekit.messages.catalogue import CATALOGUE
from tracekit.messages.requests import SUBJECT_MISTYPED, SUBJECT_UNKNOWN

PAGE_FOLDERS = ("tutorial", "how-to", "reference", "explanation")
PAGE_ROOTS = (Path(__file__).parent / "pages", Path(__file__).parents[1] / "docs")
"""Inside the package once installed, beside it in a checkout."""
MARKDOWN_COMMENT = re.compile(r"<!--.*?-->\n?")
"""What a browser doesn't show, nor should a terminal."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the documentation.

    Attributes:
        name: Its file's name without the suffix.
        folder: The folder that it is in.
        text: Its Markdown.
    """

    name: str
    folder: str
    text: str

    @property
    def title(self) -> str:
        """Its heading."""
        return self.text.partition("\n")[0].lstrip("# ")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of a message, or a page.

    Attributes:
        template: The message's entry of the catalogue; None for a page.
        mentions: Title of each page that says more of the message, and what it says there.
        page: The page; None for a message.
    """

    template: Template | None = None
    mentions: tuple[tuple[str, str], ...] = ()
    page: Page | None = None


@cache
def list_pages() -> tuple[Page, ...]:
    """List the pages, by folder and name."""
    root = next((root for root in PAGE_ROOTS if root.is_dir()), PAGE_ROOTS[0])
    paths = [path for folder in PAGE_FOLDERS for path in sorted((root / folder).glob("*.md"))]
    return tuple(
        Page(path.stem, path.parent.name, MARKDOWN_COMMENT.sub("", path.read_text(encoding="utf-8"))) for path in paths
    )


def explain_code(subject: str) -> Explanation:
    """Return what is known of a message by its code, or the page of that name.

    Raises:
        TracekitError: There is neither.
    """
    if subject in CATALOGUE:
        return Explanation(CATALOGUE[subject], tuple(_find_mentions(subject)))
    pages = {page.name: page for page in list_pages()}
    if subject in pages:
        return Explanation(page=pages[subject])
    near = get_close_matches(subject, [*CATALOGUE, *pages])
    raise TracekitError(SUBJECT_MISTYPED(name=subject, near=near) if near else SUBJECT_UNKNOWN(name=subject))


def _find_mentions(code: str) -> Iterator[tuple[str, str]]:
    """Yield the rows of tables that name a code, each cell under its heading."""
    for page in list_pages():
        heads: list[str] = []
        for line in page.text.splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            heads = cells if cells and not heads else heads if cells else []
            if f"`{code}`" in line and cells and cells != heads:
                said = zip(heads[1:], cells[1:], strict=False)
                yield page.title, "; ".join(f"{_drop_links(head)}: {_drop_links(cell)}" for head, cell in said if cell)


def _drop_links(text: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


SAMPLE_SUFFIX = ".json.gz"
SAMPLE_FOLDERS = (Path(__file__).parent / "web" / "samples", Path(__file__).parents[1] / "sample_traces")
DEMO_SAMPLE = "synthetic_transformer_train"


@cache
def find_samples() -> dict[str, Path]:
    """Return the samples by name."""
    return {
        path.name.removesuffix(SAMPLE_SUFFIX): path
        for folder in SAMPLE_FOLDERS
        for path in sorted(folder.glob(f"*{SAMPLE_SUFFIX}"))
    }
