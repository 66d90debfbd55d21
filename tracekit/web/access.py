"""Access control: host names, cross-site requests, rate limits, body sizes, tokens and security headers."""

import hashlib
import hmac
import logging
import secrets
import time
from collections import Counter
from http.cookies import SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tracekit.messages import web_errors
from tracekit.web.errors import ForbiddenError, TooLargeError, TooManyError, UnauthorizedError, WebError
from tracekit.web.settings import LOOPBACK, Settings

OWNER_COOKIE = "tracekit_owner"
TOKEN_COOKIE = "tracekit_token"
COOKIE_MAX_AGE_S = 365 * 86_400

# Owner of requests without a cookie on a server without a token: only programs on this machine can send them.
LOCAL_OWNER = "local"

MAX_BODY_BYTES = 1 << 20
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
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
    """Middleware that refuses forbidden requests and adds the security headers to every response.

    Logs one line per request, with the route's pattern in place of its path: ids and links are secrets.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._rates = RateLimiter(settings.max_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        owner = None if scope["path"].startswith(("/api/", "/static/")) else _create_owner(headers)
        scope.setdefault("state", {})["owner"] = owner
        begun = time.perf_counter()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message), scope, owner)
                route = getattr(scope.get("route"), "path", "-")
                taken_ms = 1e3 * (time.perf_counter() - begun)
                log.info("%s %s %d %.0f ms", scope["method"], route, message["status"], taken_ms)
            await send(message)

        try:
            self._check_request(scope, headers)
        except WebError as error:
            from tracekit.web.responses import create_refusal

            await create_refusal(scope, error)(scope, receive, answer)
            return
        await self._app(scope, receive, answer)

    def _check_request(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        # DNS rebinding: a page of another site whose name resolves to this machine must not act as a local program.
        if self._settings.token is None and self._settings.is_local and _parse_hostname(host) not in LOOPBACK:
            raise ForbiddenError(web_errors.HOST_NAME_FOREIGN())
        if scope["method"] in SAFE_METHODS:
            return
        origin = headers.get("origin")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") or (
            origin is not None and origin.split("://")[-1] != host
        ):
            raise ForbiddenError(web_errors.ORIGIN_FOREIGN())
        if scope["method"] in ("POST", "PUT"):
            self._rates.count(scope["client"][0] if scope["client"] else "")
        if not _is_upload(scope):
            _check_body(headers)

    def _add_headers(self, headers: MutableHeaders, scope: Scope, owner: str | None) -> None:
        for name, value in SECURITY_HEADERS.items():
            headers.setdefault(name, value)
        if owner is not None:
            headers.append("set-cookie", format_cookie(OWNER_COOKIE, owner, secure=scope["scheme"] == "https"))


class RateLimiter:
    """Counter of each address's uploads and jobs in the current minute."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._minute = 0
        self._counts: Counter[str] = Counter()

    def count(self, address: str) -> None:
        """Count one more request.

        Raises:
            TooManyError: The limit is exceeded.
        """
        minute = int(time.time() // 60)
        if minute != self._minute:
            self._minute, self._counts = minute, Counter()
        self._counts[address] += 1
        if self._counts[address] > self._most:
            raise TooManyError(web_errors.RATE_EXCEEDED(most=self._most))


def get_owner(request: Request) -> str:
    """Return the owner whose uploads and jobs a request may access.

    Raises:
        UnauthorizedError: The token is missing or wrong.
    """
    settings: Settings = request.app.state.settings
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    if settings.token is not None:
        if bearer:
            check_token(settings, bearer)
            return _hash_secret(bearer)
        check_token(settings, request.cookies.get(TOKEN_COOKIE, ""))
    owner = request.state.owner or request.cookies.get(OWNER_COOKIE)
    return _hash_secret(owner) if owner else LOCAL_OWNER


def check_token(settings: Settings, given: str) -> None:
    """Compare a token with the server's.

    Raises:
        UnauthorizedError: The token is wrong.
    """
    if settings.token is not None and not hmac.compare_digest(given.encode(), settings.token.encode()):
        raise UnauthorizedError(web_errors.TOKEN_WRONG())


def format_cookie(name: str, value: str, *, secure: bool) -> str:
    """Format a cookie that scripts can't read and other sites can't send."""
    jar: SimpleCookie = SimpleCookie()
    jar[name] = value
    return (
        jar[name].OutputString() + f"; Path=/; HttpOnly; SameSite=Lax; Max-Age={COOKIE_MAX_AGE_S}{'; Secure' * secure}"
    )


def _hash_secret(secret: str) -> str:
    """Hash a secret for storage."""
    return hashlib.blake2b(secret.encode(), digest_size=16).hexdigest()


def _create_owner(headers: Headers) -> str | None:
    return None if f"{OWNER_COOKIE}=" in headers.get("cookie", "") else secrets.token_hex(16)


def _parse_hostname(host: str) -> str:
    return host.rsplit(":", 1)[0].strip("[]") if not host.endswith("]") else host.strip("[]")


def _is_upload(scope: Scope) -> bool:
    """Return whether the body is a file's content, which is streamed and has its own limits."""
    path: str = scope["path"]
    return scope["method"] == "PATCH" or (scope["method"] == "PUT" and path.startswith("/api/v1/traces/"))


def _check_body(headers: Headers) -> None:
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not length.isdigit() or int(length) > MAX_BODY_BYTES:
        raise TooLargeError(web_errors.BODY_TOO_LARGE(max_length=MAX_BODY_BYTES))
