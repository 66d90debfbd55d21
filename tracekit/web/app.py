"""The application: routes, error handlers and middleware."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from predictors import PredictorError
from tracekit import __version__
from tracekit.errors import TracekitError
from tracekit.web import api, api_docs, compare, job_pages, pages, responses, serving, shard, tus
from tracekit.web.access import AccessMiddleware, TokenChecker
from tracekit.web.database import MAX_WAITING_CHANGES, READ_CONNECTIONS
from tracekit.web.settings import Settings
from tracekit.web.store import Store
from tracekit.web.worker import WorkerPool

OTHER_THREADS = 22
"""Threads for what needs no database."""

DESCRIPTION = "Upload the PyTorch profiler traces of a run, ask how long its step would take on other GPUs."


def create_app(settings: Settings) -> FastAPI:
    """Create the application of one server; its workers run as long as it does."""
    store = Store.open(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = MAX_WAITING_CHANGES + READ_CONNECTIONS + OTHER_THREADS
        workers = WorkerPool(settings, store)
        app.state.workers = workers
        workers.start()
        yield
        await to_thread.run_sync(workers.stop)
        store.close()

    app = FastAPI(
        title="tracekit",
        version=__version__,
        description=DESCRIPTION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    tokens = TokenChecker(settings)
    app.state.settings, app.state.store, app.state.tokens = settings, store, tokens
    for area in (api, api_docs, compare, serving, shard, tus, job_pages, pages):
        app.include_router(area.router)
    app.mount("/static", StaticFiles(directory=responses.STATIC), name="static")
    app.add_exception_handler(TracekitError, responses.on_tracekit_error)
    app.add_exception_handler(PredictorError, responses.on_tracekit_error)
    app.add_exception_handler(HTTPException, responses.on_http_error)
    app.add_exception_handler(RequestValidationError, responses.on_invalid_request)
    app.add_middleware(AccessMiddleware, settings=settings, tokens=tokens)
    return app
