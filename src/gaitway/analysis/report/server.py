"""The live page over HTTP, by the standard library: a page, its state, its curves, files of runs. Reading alone.

What is refused: every method but GET and HEAD, a `Host` that is not this server (so that a name which somebody else
points here reads nothing), every path that is not in the list of what there is, and, beyond this machine, whoever does
not know the token.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from gaitway.analysis.report.folders import open_inside
from gaitway.analysis.report.live import LiveBoard
from gaitway.analysis.report.page import live_page, page_script, page_style, plotly_script

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""Of files of runs: a picture or a page of theirs that is opened by itself runs nothing and asks nobody."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CHUNK = 1 << 18
RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
TIMEOUT_S = 30.0


class DashServer(ThreadingHTTPServer):
    """Serves one folder of runs."""

    daemon_threads = True

    def __init__(self, root: Path, host: str | None, port: int, metric: str | None = None) -> None:
        self.token = None if host is None else secrets.token_urlsafe(24)
        self.board = LiveBoard(root, metric)
        name = host or "127.0.0.1"
        self.address_family = socket.AF_INET6 if ":" in name else socket.AF_INET
        super().__init__((name, port), _Handler)
        self.host = name
        self.own_names = {*LOOPBACK, name.lower(), *((socket.gethostname().lower(),) if host else ())}
        contents = {"script": page_script(), "style": page_style(), "plotly": plotly_script()}
        types = {"style": "text/css; charset=utf-8"}
        self.static: dict[str, tuple[str, bytes]] = {}
        addresses = {}
        for kind, content in contents.items():
            data = content.encode()
            addresses[kind] = f"/static/{kind}-{hashlib.sha256(data).hexdigest()[:16]}"
            self.static[addresses[kind]] = (types.get(kind, "text/javascript; charset=utf-8"), data)
        self.page = live_page(self.board.title, addresses).encode()

    @property
    def url(self) -> str:
        """What to open, with the token where one is needed."""
        port = self.server_address[1]
        name = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/{f'?token={self.token}' if self.token else ''}"

    def is_own(self, header: str) -> bool:
        """Whether a `Host` header means this server. Addresses in numbers are safe beyond this machine: what is
        pointed here by somebody else has a name."""
        name, _, port = header.rpartition(":") if re.search(r":\d+$", header) else (header, "", "80")
        name = name.lower().removeprefix("[").removesuffix("]")
        if port != str(self.server_address[1]):
            return False
        return name in self.own_names or (self.token is not None and _is_address(name))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers hang up in the middle of films; that is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: DashServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "gaitway", ""
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        if self.headers.get("Content-Length") or self.headers.get("Transfer-Encoding"):
            self.close_connection = True  # a body that nobody reads must not be taken for the next question
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not self.server.is_own(hosts[0].strip()):
            return self._refuse(421, "this server has another name; open the address that `gaitway dash` printed")
        if not self.path.startswith("/") or self.path.startswith("//"):
            return self._refuse(400, "not a path")
        address = urlsplit(self.path)
        if not self._is_known(address.path, address.query):
            return None
        if address.path == "/":
            return self._send(200, "text/html; charset=utf-8", self.server.page)
        if address.path in self.server.static:
            kind, data = self.server.static[address.path]
            return self._send(200, kind, data, {"Cache-Control": "private, max-age=86400, immutable"})
        if address.path in ("/api/state", "/api/curves"):
            return self._answer(address.path, address.query)
        if address.path.startswith("/media/"):
            return self._file(address.path)
        if address.path == "/favicon.ico":
            return self._send(204, "", b"")
        return self._refuse(404, "there is nothing here")

    do_HEAD = do_GET  # noqa: N815

    def _not_allowed(self) -> None:
        self.close_connection = True
        self._send(405, "text/plain; charset=utf-8", b"this server only reads\n", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _not_allowed  # noqa: N815

    def _is_known(self, path: str, query: str) -> bool:
        """Whether the visitor has the token; one who brings it in the address gets it as a cookie."""
        token = self.server.token
        if token is None:
            return True
        name = f"gaitway-{self.server.server_address[1]}"
        given = parse_qs(query).get("token", [""])[0]
        if path == "/" and hmac.compare_digest(given.encode(), token.encode()):
            cookie = f"{name}={token}; HttpOnly; SameSite=Strict; Path=/"
            self._send(303, "text/plain", b"", {"Location": "/", "Set-Cookie": cookie})
            return False
        try:
            kept = SimpleCookie(self.headers.get("Cookie", "")).get(name)
        except CookieError:
            kept = None
        if kept is not None and hmac.compare_digest(kept.value.encode(), token.encode()):
            return True
        self._refuse(403, "open the address with the token that `gaitway dash` printed")
        return False

    def _answer(self, path: str, query: str) -> None:
        asked = parse_qs(query, keep_blank_values=True, errors="surrogateescape", max_num_fields=8)
        snapshot = self.server.board.snapshot()
        if snapshot is None:
            return self._refuse(503, "the runs are being read")
        if path == "/api/curves":
            content = snapshot.curves(asked.get("metric", [""])[0])
            if content is None:
                return self._refuse(404, "no run has this metric")
            return self._send(200, "application/json", content)
        if asked.get("version") == [snapshot.version]:
            return self._send(204, "application/json", b"")
        return self._send(200, "application/json", snapshot.state)

    def _file(self, path: str) -> None:
        """A file of a run, if it is one of those that were found; the address is decoded once."""
        parts = [unquote(part, errors="surrogateescape") for part in path.split("/")[2:]]
        snapshot = self.server.board.snapshot()
        found = None if snapshot is None else snapshot.media.get((parts[0], tuple(parts[1:])))
        if found is None:
            return self._refuse(404, "there is no such film or picture")
        folder, medium = found
        try:
            file = os.fdopen(open_inside(folder, list(medium.parts)), "rb")
        except OSError:
            return self._refuse(404, "it is gone")
        with file:
            self._send_file(file, medium.type)
        return None

    def _send_file(self, file: Any, kind: str) -> None:
        size = os.fstat(file.fileno()).st_size
        first, last, status = 0, size - 1, 200
        asked = RANGE.fullmatch(self.headers.get("Range", "").strip())
        headers = {
            "Accept-Ranges": "bytes",
            "Content-Security-Policy": FILE_POLICY,
            "Cache-Control": "private, no-cache",
        }
        if asked is not None and any(asked.groups()):
            begin, end = asked.groups()
            first = int(begin) if begin else max(0, size - int(end))
            last = min(size - 1, int(end)) if begin and end else size - 1
            if first > last:
                headers["Content-Range"] = f"bytes */{size}"
                return self._send(416, "text/plain", b"", headers)
            status, headers["Content-Range"] = 206, f"bytes {first}-{last}/{size}"
        if kind.startswith("text/"):
            kind, headers["Content-Disposition"] = "text/plain; charset=utf-8", "attachment"
        self._head(status, kind, last - first + 1, headers)
        file.seek(first)
        left = last - first + 1
        while left > 0 and self.command != "HEAD":
            part = file.read(min(CHUNK, left))
            if not part:
                self.close_connection = True  # it became shorter: what was promised cannot be sent
                return None
            self.wfile.write(part)
            left -= len(part)
        return None

    def _refuse(self, status: int, sentence: str) -> None:
        self.close_connection = True
        content = f"gaitway: {sentence}\n".encode()
        self._send(status, "text/plain; charset=utf-8", content, {"Connection": "close"})

    def _send(self, status: int, kind: str, content: bytes, headers: dict[str, str] | None = None) -> None:
        self._head(status, kind, len(content), headers or {})
        if self.command != "HEAD" and status != 204:
            self.wfile.write(content)

    def _head(self, status: int, kind: str, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (
            {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"} | HEADERS | headers
        ).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses, without the markup and the words of the question."""
        self.close_connection = True
        self.command = getattr(self, "command", None) or "GET"
        if not hasattr(self, "request_version"):
            self.request_version = "HTTP/1.1"
        self._refuse(code, "not understood")

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads a line for every question."""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
