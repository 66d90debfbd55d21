"""The client in docs/how-to/serve.md works as it stands."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

from sqlalchemy import select

from tracekit.web.database import JOBS

ROOT = Path(__file__).parents[2]


def test_the_client_of_the_docs(start, store, work, tmp_path, make_trace):
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "serve.md").read_text(), re.DOTALL).group(1)
    assert len(code.splitlines()) <= 40
    token = "a-token-of-enough-characters"
    server = str(start(token=token).base_url)
    (tmp_path / "trace.json").write_bytes(make_trace())

    def run():
        environment = {**os.environ, "TRACEKIT_SERVER": server, "TRACEKIT_TOKEN": token}
        command = [sys.executable, "-c", code, str(tmp_path / "trace.json"), "h100-sxm", "l40s"]
        done.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=False))

    done = []
    client = threading.Thread(target=run)
    client.start()
    while not store.database.read(select(JOBS)):
        assert client.is_alive(), done
    work()
    client.join()
    assert done[0].stderr == ""
    assert {line.split(":")[0] for line in done[0].stdout.splitlines()} == {"h100-sxm", "l40s"}
