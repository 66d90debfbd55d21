"""Files of others are what they are said to be, and no page asks another host for anything."""

import hashlib
import re
import tomllib

from tracekit.web.responses import STATIC

VENDOR = STATIC / "vendor"
TEMPLATES = STATIC.parent / "templates"


def test_every_file_is_listed_and_unchanged():
    listed = tomllib.loads((VENDOR / "VENDORED.toml").read_text())["file"]
    for entry in listed:
        assert hashlib.sha256((VENDOR / entry["name"]).read_bytes()).hexdigest() == entry["sha256"]
        assert (VENDOR / entry["licence_file"]).read_text()
        assert entry["version"].count(".") == 2
    texts = {entry["licence_file"] for entry in listed} | {"VENDORED.toml"}
    notices = {path.name for path in VENDOR.iterdir() if "LICENSE" in path.name or path.suffix == ".NOTICE"}
    assert {path.name for path in VENDOR.iterdir()} == {entry["name"] for entry in listed} | texts | notices


def test_no_page_asks_another_host():
    texts = {path.name: path.read_text() for path in (*TEMPLATES.iterdir(), *STATIC.glob("*.*"))}
    assert len(texts) > 5
    other_host = re.compile(r"(?:src|href|action|url)\s*[=(:]\s*[\"']?(?:https?:)?//")
    assert [name for name, text in texts.items() if other_host.search(text)] == []


def test_every_asset_of_a_page_is_there():
    named = {asset for path in TEMPLATES.iterdir() for asset in re.findall(r"/static/([\w./-]+)", path.read_text())}
    assert len(named) > 3
    assert [asset for asset in sorted(named) if not (STATIC / asset).is_file()] == []
