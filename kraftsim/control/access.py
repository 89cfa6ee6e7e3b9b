"""Who may talk to the HTTP port: a token, and three checks against web pages of strangers.

A port on loopback is open to every user and every web page of the machine. So each request needs

- the address of this server as its Host: a name that an attacker's DNS maps to 127.0.0.1 (DNS
  rebinding) is another one,
- no Origin, or this server's own: a page of another site may send requests, but its browser says
  where they come from. No answer has a CORS header, so such a page reads nothing either,
- `Authorization: Bearer TOKEN`, but for the paths in `public`, which say nothing about the cluster.

The checks come before routing: a stranger does not learn which paths there are.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT: Final = 80
BODY_BYTES_MAX: Final = 64 * 1024
TOKEN_VARIABLE: Final = "KRAFTSIM_HTTP_TOKEN"
TOKEN: Final = re.compile(r"[!-~]{16,256}")
SAME_SITE: Final = (b"same-origin", b"none")
"""The values of Sec-Fetch-Site for what a page of this server sends, or the user."""
OWN_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
"""On each response, unless it has its own."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was refused, and what to do instead."""

    error: str
    hint: str = ""


class BadToken(ValueError):
    """A token that nothing can be protected with; one line."""


def read_token(file: Path | None, environment: Mapping[str, str]) -> str | None:
    """Return the token of a file, or of the environment; None if there is none.

    Raises BadToken, or OSError for a file that cannot be read.
    """
    where = TOKEN_VARIABLE if file is None else str(file)
    given = environment.get(TOKEN_VARIABLE) if file is None else file.read_text().strip()
    if given is None:
        return None
    if not TOKEN.fullmatch(given):
        raise BadToken(f"the token of {where} is not 16 to 256 printable characters without blanks")
    return given


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Where HTTP is served."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether no other machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def url(self) -> str:
        """The beginning of all URLs, without a slash at its end."""
        return f"http://{_bracketed(self.host)}:{self.port}"

    def is_own(self, host: str) -> bool:
        """Return whether the value of a Host header means this server.

        On loopback only its own names with its port do. Elsewhere the address may be mapped to
        another one and another port, so any IP address does as well: DNS rebinding needs a name.
        """
        name, port = _split(host.lower())
        if self.is_loopback:
            is_port = port == self.port or (port is None and self.port == HTTP_PORT)
            return is_port and name in (*LOOPBACK_NAMES, _bracketed(self.host).lower())
        return name in ("localhost", self.host.lower()) or _is_address(name)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _split(host: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::(\d{1,5}))?", host)
    if found is None:
        return "", None
    return found[1], None if found[2] is None else int(found[2])


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


class AccessCheck:
    """Passes requests on to `app` that may be served; refuses the others with a `Refused`.

    `public` are the paths that GET and HEAD may read without a token.
    """

    def __init__(
        self, app: ASGIApp, *, address: HttpAddress, token: str, public: frozenset[str]
    ) -> None:
        self._app = app
        self._address = address
        self._digest = _digest(token.encode())
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        assert scope["type"] == "http", "lifespan is off"
        refusal = self._refusal(scope)
        sending = _with_headers(send)
        if refusal is None:
            await self._app(scope, receive, sending)
            return
        status, refused = refusal
        body = msgspec.json.encode(refused)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        if status == 401:
            headers.append((b"www-authenticate", b'Bearer realm="kraftsim"'))
        await sending({"type": "http.response.start", "status": status, "headers": headers})
        is_head = scope["method"] == "HEAD"
        await sending({"type": "http.response.body", "body": b"" if is_head else body})

    def _refusal(self, scope: Scope) -> tuple[int, Refused] | None:
        """Return the status and the reason, if a request must not be served."""
        given: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name, []).append(value)
        hosts = [value.decode("latin-1") for value in given.get(b"host", ())]
        if len(hosts) != 1 or not self._address.is_own(hosts[0]):
            return 403, Refused(
                error="the Host header does not name this server",
                hint=f"use the URL {self._address.url}, not another name for it",
            )
        own = f"http://{hosts[0].lower()}"
        if any(origin.decode("latin-1").lower() != own for origin in given.get(b"origin", ())):
            return 403, Refused(
                error="a page of another origin sent this request",
                hint=f"requests come from pages of {own}, or from programs",
            )
        length = given.get(b"content-length", [b"0"])[-1]
        if not length.isdigit() or len(length) > 9 or int(length) > BODY_BYTES_MAX:
            return 413, Refused(
                error="the body is too long", hint=f"at most {BODY_BYTES_MAX} bytes are read"
            )
        if scope["method"] in ("GET", "HEAD") and scope["path"] in self._public:
            return None
        if any(site not in SAME_SITE for site in given.get(b"sec-fetch-site", ())):
            return 403, Refused(
                error="a page of another site sent this request",
                hint=f"requests come from pages of {own}, or from programs",
            )
        return self._refusal_of_token(given.get(b"authorization", []))

    def _refusal_of_token(self, values: list[bytes]) -> tuple[int, Refused] | None:
        scheme, _, token = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
        if scheme.lower() != b"bearer" or not token.strip():
            return 401, Refused(
                error="this needs a token",
                hint="send `Authorization: Bearer TOKEN`; `kraftsim up` printed it, and the file "
                "cluster.json of its data directory has it as http_token",
            )
        if not hmac.compare_digest(_digest(token.strip()), self._digest):
            return 403, Refused(
                error="the token is wrong",
                hint="a cluster that was started again has another token, unless "
                f"{TOKEN_VARIABLE} or --http-token-file gave it",
            )
        return None


def _digest(token: bytes) -> bytes:
    """Of tokens of any length, so that their comparison takes the same time."""
    return hashlib.sha256(token).digest()


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            own = [each for each in OWN_HEADERS if each[0] not in names]
            message = {**message, "headers": [*given, *own]}
        await send(message)

    return sending
