"""Access control: host names, cross-site requests, tokens, rate limits, body sizes and security headers."""

import asyncio
import hmac
import logging
import secrets
import time
from collections import Counter
from contextlib import suppress
from http.cookies import SimpleCookie
from typing import Annotated

from fastapi import Depends
from fastapi import Path as InPath
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tracekit.bounds import MAX_BODY_BYTES, MAX_WRONG_TOKENS_PER_MINUTE
from tracekit.messages import Template, front_ends
from tracekit.web.errors import (
    CLIENT_FAILURES,
    ForbiddenError,
    TooLargeError,
    TooManyError,
    UnauthorizedError,
    explain_failure,
)
from tracekit.web.quotas import LOCAL_OWNER, Requester, hash_network, hash_secret
from tracekit.web.responses import ErrorBody, create_refusal
from tracekit.web.settings import LOOPBACK, Settings
from tracekit.web.store import Store

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

REPORT_PAGE_POLICY = PAGE_POLICY.replace("style-src", "style-src 'unsafe-inline'").replace("data:", "data: blob:")
"""Of pages that hold a report: its style is in the page; its script is a file of this site, like all scripts."""

REPORT_FILE_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of report files: a document made from the user's data, in an origin of its own without network access."""


OWNER_COOKIE = "tracekit_owner"
TOKEN_COOKIE = "tracekit_token"
COOKIE_MAX_AGE_S = 365 * 86_400

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

PUBLIC_PATHS = ("/login", "/api/docs", "/api/v1/openapi.json")
PUBLIC_FOLDERS = ("/static/", "/r/")
"""What is shown without the token; private links are secrets themselves."""

METHOD_HEADER = "x-http-method-override"
"""For tus clients that can't send PATCH and DELETE."""

TUS_FOLDER = "/api/v1/uploads"
TUS_VERSION = "1.0.0"

SECURITY_HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

log = logging.getLogger("tracekit.web")


class AccessMiddleware:
    """Middleware that refuses forbidden requests, tells the others whose they are, and adds the security headers.

    Logs one line per request, with the route's pattern in place of its path: ids and links are secrets.
    """

    def __init__(self, app: ASGIApp, settings: Settings, tokens: "TokenChecker") -> None:
        self._app, self._settings, self._tokens = app, settings, tokens
        self._rates = RateLimiter(settings.max_per_minute, front_ends.RATE_EXCEEDED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        override = connection.headers.get(METHOD_HEADER)
        is_tus = scope["path"].startswith(TUS_FOLDER)
        if is_tus and override is not None:
            scope = {**scope, "method": override.upper()}
        is_page = not scope["path"].startswith(("/api/", "/static/"))
        new_owner = secrets.token_hex(16) if is_page and not connection.cookies.get(OWNER_COOKIE) else None
        begun, is_answered = time.perf_counter(), False

        async def answer(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                self._add_headers(MutableHeaders(scope=message), scope, new_owner, is_tus=is_tus)
                route = getattr(scope.get("route"), "path", "-")
                taken_ms = 1e3 * (time.perf_counter() - begun)
                log.info("%s %s %d %.0f ms", scope["method"], route, message["status"], taken_ms)
            await send(message)

        try:
            self._check_request(scope, connection.headers)
            scope.setdefault("state", {})["requester"] = self._identify(connection, new_owner)
            await self._app(scope, receive, answer)
        except asyncio.CancelledError:  # ends here, or uvicorn logs it as a bug
            log.info("a request was cut off as the server stops")
        except Exception as error:
            refusal = explain_failure(error)
            if refusal is not None and not is_answered:
                with suppress(*CLIENT_FAILURES):
                    await create_refusal(scope, refusal)(scope, receive, answer)

    def _check_request(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        # DNS rebinding: a page of another site whose name resolves to this machine must not act as a local program.
        if self._settings.token is None and self._settings.is_local and _parse_hostname(host) not in LOOPBACK:
            raise ForbiddenError(front_ends.HOST_NAME_FOREIGN())
        if scope["method"] in SAFE_METHODS:
            return
        origin = headers.get("origin")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") or (
            origin is not None and origin.split("://")[-1] != host
        ):
            raise ForbiddenError(front_ends.ORIGIN_FOREIGN())
        if scope["method"] in ("POST", "PUT"):
            self._rates.count(get_network(scope))
        if not _is_upload(scope):
            _check_body(headers)

    def _identify(self, connection: HTTPConnection, new_owner: str | None) -> Requester:
        """Return whose a request is.

        Raises:
            UnauthorizedError: The token is missing or wrong.
            TooManyError: Too many wrong ones came from this network.
        """
        network = get_network(connection.scope)
        bearer = connection.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if self._settings.token is not None and not _is_public(connection.scope["path"]):
            self._tokens.check(network, bearer or connection.cookies.get(TOKEN_COOKIE, ""))
            if bearer:
                return Requester(hash_secret(bearer), network)
        owner = new_owner or connection.cookies.get(OWNER_COOKIE)
        return Requester(hash_secret(owner) if owner else LOCAL_OWNER, network)

    def _add_headers(self, headers: MutableHeaders, scope: Scope, new_owner: str | None, *, is_tus: bool) -> None:
        for name, value in SECURITY_HEADERS.items():
            headers.setdefault(name, value)
        if is_tus:
            headers.setdefault("Tus-Resumable", TUS_VERSION)
        if new_owner is not None:
            headers.append("set-cookie", format_cookie(OWNER_COOKIE, new_owner, secure=scope["scheme"] == "https"))


class RateLimiter:
    """Counter of what each network does in the current minute.

    Args:
        most: How often it may.
        refusal: Told when it does more often, with ``most``.
    """

    def __init__(self, most: int, refusal: Template) -> None:
        self._most, self._refusal = most, refusal
        self._minute = 0
        self._counts: Counter[str] = Counter()

    def count(self, network: str) -> None:
        """Count one more.

        Raises:
            TooManyError: The limit is exceeded.
        """
        self.check(network)
        self._counts[network] += 1

    def check(self, network: str) -> None:
        """Check whether the network may once more.

        Raises:
            TooManyError: The limit is reached.
        """
        minute = int(time.time() // 60)
        if minute != self._minute:
            self._minute, self._counts = minute, Counter()
        if self._counts[network] >= self._most:
            raise TooManyError(self._refusal(most=self._most))


class TokenChecker:
    """Compares tokens with the server's; a network that sends many wrong ones has to wait, whatever it sends next."""

    def __init__(self, settings: Settings) -> None:
        self._token = settings.token
        self._failures = RateLimiter(MAX_WRONG_TOKENS_PER_MINUTE, front_ends.TOKENS_WRONG)

    def check(self, network: str, given: str) -> None:
        """Check a token.

        Raises:
            UnauthorizedError: The token is missing or wrong.
            TooManyError: Too many wrong ones came from this network.
        """
        if self._token is None:
            return
        if given:
            self._failures.check(network)
        if not hmac.compare_digest(given.encode(errors="replace"), self._token.encode()):
            if given:
                self._failures.count(network)
            raise UnauthorizedError(front_ends.TOKEN_WRONG())


async def get_owner(request: Request) -> str:
    """Return the owner whose uploads and jobs a request may access."""
    return (await get_requester(request)).owner


async def get_requester(request: Request) -> Requester:
    """Return whose a request is."""
    requester: Requester = request.state.requester
    return requester


def get_network(scope: Scope) -> str:
    """Return the network that a request comes from."""
    return hash_network(scope["client"][0] if scope["client"] else "")


def format_cookie(name: str, value: str, *, secure: bool, max_age_s: int = COOKIE_MAX_AGE_S) -> str:
    """Format a cookie that scripts can't read and other sites can't send."""
    jar: SimpleCookie = SimpleCookie()
    jar[name] = value
    return jar[name].OutputString() + f"; Path=/; HttpOnly; SameSite=Lax; Max-Age={max_age_s}{'; Secure' * secure}"


def _parse_hostname(host: str) -> str:
    return host.rsplit(":", 1)[0].strip("[]") if not host.endswith("]") else host.strip("[]")


def _is_public(path: str) -> bool:
    return path in PUBLIC_PATHS or path.startswith(PUBLIC_FOLDERS)


def _is_upload(scope: Scope) -> bool:
    """Return whether the body is a file's content, which is streamed and has its own limits."""
    path: str = scope["path"]
    return scope["method"] == "PATCH" or (scope["method"] == "PUT" and path.startswith("/api/v1/traces/"))


def _check_body(headers: Headers) -> None:
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not length.isdigit() or int(length) > MAX_BODY_BYTES:
        raise TooLargeError(front_ends.BODY_TOO_LARGE(max_length=MAX_BODY_BYTES))


async def _get_store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


ID_PATTERN = "^[0-9a-f]{32}$"
Id = Annotated[str, InPath(pattern=ID_PATTERN)]
Owner = Annotated[str, Depends(get_owner)]
RequesterDependency = Annotated[Requester, Depends(get_requester)]
StoreDependency = Annotated[Store, Depends(_get_store)]
"""Dependency on the application's store."""


def document_refusals(*statuses: int) -> dict[int | str, dict[str, type[ErrorBody]]]:
    """Describe the error statuses of a route for the API's description."""
    return {status: {"model": ErrorBody} for status in (*statuses, 401, 403, 422, 429, 500, 503, 507)}
