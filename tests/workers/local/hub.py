"""A small server that speaks as much of the hub's protocol as a pull needs, with faults."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from workers.local.model_source import S2_PRO

OTHER_COMMIT = "0123456789abcdef0123456789abcdef01234567"
GOOD_TOKEN = "hf_good"


class Hub:
    """Hold the files of one repository, and what goes wrong: set the fields, then ask."""

    def __init__(self, files: dict[str, bytes], lfs: set[str]) -> None:
        """Serve `files`; those in `lfs` are listed by SHA-256, the others by git's object id."""
        self.files, self.lfs = files, lfs
        self.is_gated = False
        self.cut_after: int | None = None  # bytes of a large file that are sent before it breaks
        self.status_after_cut = 500
        self.sent_instead: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, str]] = []  # method, path, Range

    @property
    def ranges(self) -> list[str]:
        return [wanted for _, path, wanted in self.requests if wanted and "/resolve/" in path]

    @property
    def downloads(self) -> list[str]:
        return [p.rsplit("/", 1)[1] for m, p, _ in self.requests if m == "GET" and "/resolve/" in p]

    def tree(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = [
            {"type": "directory", "oid": "0" * 40, "size": 0, "path": "eval"}
        ]
        for path, content in self.files.items():
            header = f"blob {len(content)}\0".encode()
            oid = hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
            entry = {"type": "file", "oid": oid, "size": len(content), "path": path}
            if path in self.lfs:
                sha256 = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 134}
            entries.append(entry)
        return entries


@contextmanager
def serve(hub: Hub) -> Iterator[str]:
    """Serve a hub on a free port; yield its address."""

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        self.hub.requests.append((self.command, path, self.headers.get("Range", "")))
        api = f"/api/models/{S2_PRO.repo}"
        if path == f"{api}/revision/main":
            self._json(200, {"id": S2_PRO.repo, "sha": OTHER_COMMIT, "siblings": []})
        elif re.fullmatch(f"{api}/tree/({S2_PRO.revision}|{OTHER_COMMIT})", path):
            self._json(200, self.hub.tree())
        elif path.startswith(f"{api}/"):
            self._json(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        elif "/resolve/" in path:
            self._file(path.rsplit("/", 1)[1])
        else:
            self._json(404, {"error": "Not found"})

    def _file(self, name: str) -> None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.hub.is_gated and token != GOOD_TOKEN:
            self._json(403 if token else 401, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
            return
        content = self.hub.sent_instead.get(name, self.hub.files[name])
        start = int((re.match(r"bytes=(\d+)-", self.headers.get("Range", "")) or [0, 0])[1])
        if start and self.hub.cut_after is not None:
            self._json(self.hub.status_after_cut, {"error": "down"})
            return
        self.send_response(206 if start else 200)
        if start:
            end = len(content) - 1
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(content)}")
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", S2_PRO.revision)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = self.hub.cut_after
        if cut is not None and len(content) > cut:
            self.wfile.write(content[:cut])
            self.close_connection = True
            return
        self.wfile.write(content[start:])

    def _json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""
