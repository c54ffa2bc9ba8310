"""The watched folder over HTTP: one page and its data, for this machine alone, to be read only."""

import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import urlsplit

from coterie.core.errors import CoterieError
from coterie.render.page.render import render_live
from coterie.render.watch.live import Live

HOME = "127.0.0.1"
IDLE_S = 60.0  # a connection nobody uses is closed


class Server(ThreadingHTTPServer):
    """Answers `serve_forever`, and ends without waiting for open connections."""

    daemon_threads = True

    def __init__(self, live: Live, port: int = 0) -> None:
        """Take a port of this machine alone, any free one if 0."""
        self.live = live
        self.page, rule = render_live()
        self.policy = f"{rule}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        try:
            super().__init__((HOME, port), _Handler)
        except OSError as error:
            reason = error.strerror or error
            raise CoterieError(
                f"--port {port}: cannot be used ({reason}); leave --port out to take a free one"
            ) from error

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{HOME}:{self.server_port}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """What a browser may call this server."""
        return tuple(f"{name}:{self.server_port}" for name in (HOME, "localhost"))

    def server_bind(self) -> None:
        """Take the port without asking the network for this machine's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOME, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about browsers that hang up; anything else is a bug and shows."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of what there is; takes nothing, and reads no file by a name given."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "coterie", ""
    timeout = IDLE_S
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Send the page or its data."""
        path = self._path()
        if path is None or len(self.headers.get_all("Host", ())) > 1:
            self._refuse(HTTPStatus.BAD_REQUEST, "not a request that can be answered")
        elif self.headers.get("Host") not in self.server.hosts:
            # A foreign name that leads here is how another site would read what it must not.
            self._refuse(HTTPStatus.FORBIDDEN, f"only for {' and '.join(self.server.hosts)}")
        elif path == "/":
            self._content(self.server.page, "text/html; charset=utf-8")
        elif path == "/data.json":
            answer = self.server.live.latest()
            if self.headers.get("If-None-Match") == answer.tag:
                self._send(HTTPStatus.NOT_MODIFIED, {"ETag": answer.tag})
            else:
                self._content(answer.body, "application/json", ETag=answer.tag)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is / and /data.json")

    def _path(self) -> str | None:
        """Return the path that is asked for; None if there is none to be read."""
        try:
            return urlsplit(self.path).path
        except ValueError:
            return None

    def do_HEAD(self) -> None:
        """Send the same without the content."""
        self.do_GET()

    def __getattr__(self, name: str) -> Any:
        """Refuse every other method."""
        if name.startswith("do_"):
            return lambda: self._refuse(
                HTTPStatus.METHOD_NOT_ALLOWED, "read only: GET or HEAD", Allow="GET, HEAD"
            )
        raise AttributeError(name)

    def _refuse(self, status: HTTPStatus, why: str, **also: str) -> None:
        self.close_connection = True  # what came with the request is not read
        kind = "text/plain; charset=utf-8"
        self._content(f"{why}\n".encode(), kind, status, Connection="close", **also)

    def _content(
        self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK, **also: str
    ) -> None:
        about = {"Content-Type": kind, "Content-Length": str(len(body))}
        self._send(status, {**about, **also}, body)

    def _send(self, status: HTTPStatus, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse with a status line, also who speaks no known version of HTTP."""
        self.request_version = self.protocol_version
        super().send_error(code, message, explain)

    def end_headers(self) -> None:
        """Add to every answer what keeps others out."""
        for name, value in (
            ("Content-Security-Policy", self.server.policy),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the terminal quiet."""
