"""The local page of `tinyset watch`: served to this machine only, and only to pages that were asked for by its name."""

import json
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tinyset.errors import TinysetError, UserError
from tinyset.report.following import Following
from tinyset.report.page import asset, document

HOST = "127.0.0.1"


def watch_page(name: str) -> str:
    style, script = asset("report.css", "watch.css"), asset("parts.js", "watch.js")
    return document(f"{name} – tinyset watch", "", asset("watch.html"), style, script, served=True)


class Handler(BaseHTTPRequestHandler):
    """Three addresses: the page, its state as JSON, and a picture."""

    def __init__(self, following: Following, *args: Any) -> None:
        self.following = following
        super().__init__(*args)

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in (HOST, "localhost"):  # another site whose name was pointed here
            return self._send(403, "text/plain", b"This page is for this machine only.\n")
        path = self.path.partition("?")[0]
        if path == "/":
            return self._send(200, "text/html; charset=utf-8", watch_page(self.following.folder.name).encode())
        if path == "/state":
            try:
                state = self.following.state()
            except (OSError, TinysetError):  # the folder is gone, or being replaced
                return self._send(503, "text/plain", b"The run's folder cannot be read.\n")
            return self._send(200, "application/json", json.dumps(state, allow_nan=False).encode())
        picture = self.following.picture() if path == "/picture.png" else None
        if picture is None:
            return self._send(404, "text/plain", b"Not here.\n")
        return self._send(200, "image/png", picture)

    def _send(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """A request a second is not worth a line."""


def server(following: Following, port: int) -> ThreadingHTTPServer:
    """Bound to the loopback address; port 0 takes a free one."""
    try:
        made = ThreadingHTTPServer((HOST, port), partial(Handler, following))
    except (OSError, OverflowError) as error:
        raise UserError(f"--port {port}: {getattr(error, 'strerror', None) or error}.") from None
    made.daemon_threads = True
    return made
