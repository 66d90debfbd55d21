"""``tracekit serve``: serve the web page."""

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from tracekit.bounds import MAX_TRACES

Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on; others need --token.")]
Port = Annotated[int, typer.Option("--port", metavar="N", min=1, max=65535, help="Port to listen on.")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TEXT", envvar="TRACEKIT_TOKEN", help="What clients must know; 16 characters or more."
    ),
]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Where to keep jobs; default your data folder.")
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", envvar="TRACEKIT_DATABASE", help="postgresql://…; default SQLite."),
]
FilesUrl = Annotated[
    str | None,
    typer.Option("--files", metavar="URL", help="Where uploads and reports go, such as s3://bucket/x; default --data."),
]
Workers = Annotated[int, typer.Option("--workers", metavar="N", min=0, help="Jobs that run at once.")]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="Where the ranks of large jobs are worked on, one by one: local (the worker), dask (processes of this "
        "machine), or tcp://scheduler:8786. Default: all in one piece.",
    ),
]
EngineRanks = Annotated[
    int, typer.Option("--engine-ranks", metavar="N", min=2, help="Ranks from which a job is one for --engine.")
]
WorkerMemory = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", help="What a job may take, such as 8G; default 3/4 of all, shared."),
]
TimeLimit = Annotated[int, typer.Option("--time-limit", metavar="S", min=1, help="Seconds that a job may take.")]
Keep = Annotated[
    float, typer.Option("--keep", metavar="DAYS", min=0.01, max=36_500, help="Days until jobs are deleted.")
]
MaxUpload = Annotated[str, typer.Option("--max-upload", metavar="SIZE", help="Largest file.")]
MaxUnpacked = Annotated[str, typer.Option("--max-unpacked", metavar="SIZE", help="Most text in a job's files.")]
MaxFiles = Annotated[int, typer.Option("--max-files", metavar="N", min=1, help="Most files of a job.")]
MaxQueued = Annotated[int, typer.Option("--max-queued", metavar="N", min=1, help="Most jobs that wait.")]
MaxJobs = Annotated[int, typer.Option("--max-jobs", metavar="N", min=1, help="Most jobs that are kept for an owner.")]
MaxStored = Annotated[
    str, typer.Option("--max-stored", metavar="SIZE", help="Most that is kept of an owner's uploads and reports.")
]
Rate = Annotated[int, typer.Option("--rate", metavar="N", min=1, help="Uploads and jobs of one address a minute.")]


def serve(
    host: Host = "127.0.0.1",
    port: Port = 8321,
    token: Token = None,
    data: Data = None,
    database: DatabaseUrl = None,
    files: FilesUrl = None,
    workers: Workers = 1,
    engine: Engine = None,
    engine_ranks: EngineRanks = 16,
    memory: WorkerMemory = None,
    time_limit: TimeLimit = 1800,
    keep: Keep = 7.0,
    max_upload: MaxUpload = "4G",
    max_unpacked: MaxUnpacked = "32G",
    max_files: MaxFiles = MAX_TRACES,
    max_queued: MaxQueued = 500,
    max_jobs: MaxJobs = 1000,
    max_stored: MaxStored = "64G",
    rate: Rate = 1200,
) -> None:
    """A web page on this machine: upload traces, choose GPUs, get the report.

    Example: tracekit serve --port 8321
    """
    from tracekit.engine import check_engine
    from tracekit.errors import TracekitError
    from tracekit.ingest import parse_memory_size
    from tracekit.messages.front_ends import SERVE_NEEDS_LINUX
    from tracekit.messages.requests import EXTRA_MISSING
    from tracekit.web.settings import Settings, check_settings

    if sys.platform != "linux":
        raise TracekitError(SERVE_NEEDS_LINUX())
    settings = Settings(
        data=(data or _get_data_directory()).absolute(),
        host=host,
        port=port,
        token=token,
        database=database,
        files=files,
        workers=workers,
        engine=engine,
        engine_ranks=engine_ranks,
        memory_bytes=0 if memory is None else parse_memory_size(memory),
        time_limit_s=time_limit,
        keep_s=round(keep * 86_400),
        max_upload_bytes=parse_memory_size(max_upload),
        max_unpacked_bytes=parse_memory_size(max_unpacked),
        max_files=max_files,
        max_queued=max_queued,
        max_jobs_per_owner=max_jobs,
        max_stored_bytes=parse_memory_size(max_stored),
        max_per_minute=rate,
    )
    check_settings(settings)
    if engine is not None:
        check_engine(engine)
    try:
        from tracekit.web.server import run_server
    except ImportError as error:
        raise TracekitError(EXTRA_MISSING(distribution=error.name, reason=str(error), extra="web")) from error
    gc.set_threshold(700)  # Python's own: a server outlives what other commands leave to their end
    run_server(settings, lambda: typer.echo(f"http://{host}:{port}", err=True))


def _get_data_directory() -> Path:
    import platformdirs

    return Path(platformdirs.user_data_dir("tracekit", appauthor=False)) / "web"
