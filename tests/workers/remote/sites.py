"""A site as its operator runs it, the line to it, and workers that have a key and nothing else."""

from __future__ import annotations

import datetime as dt
import http.server
import random
import socket
import ssl
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from synth.accounts.access import create_key
from synth.models import ApiKey
from tests.factories import make_user
from tests.workers.conftest import TINY
from tests.workers.pairs import CLOCKS, PROJECT, Pair, RunningWorker, changed_environment
from workers.remote.connection import KEEP_SECONDS
from workers.remote.messages import ROOT


class WebProcess:
    """The site's web process, which can be killed, stopped and started again on its socket.

    One that ends by itself is started again, as every way to run a site does, with a warning.

    Attributes:
        processes: the one that runs, last, and those before it.
    """

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._listening = socket.socket()
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen(200)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.processes: list[RunningWorker] = []
        self._ended_alone: list[str] = []
        self._changing, self._is_wanted = threading.Lock(), True
        self.start()
        threading.Thread(target=self._keep, daemon=True).start()

    def start(self) -> None:
        descriptor = self._listening.fileno()
        path = self._pair.data_dir / f"web-{len(self.processes)}.log"
        with path.open("wb") as log:
            popen = subprocess.Popen(
                [sys.executable, "-m", "ttsweb.http.listen", str(descriptor), "5"],
                env=changed_environment(self._pair.environment, {}),
                cwd=PROJECT,
                pass_fds=[descriptor],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.processes.append(RunningWorker("web", popen, path))
        self._is_wanted = True

    def _keep(self) -> None:
        while self._listening.fileno() >= 0:
            with self._changing:
                code = self.processes[-1].popen.poll()
                if code is not None and self._is_wanted:
                    self._ended_alone.append(f"exit code {code}: {self.processes[-1].log[-4000:]}")
                    self.start()
            time.sleep(0.1)

    def send(self, number: int) -> None:
        self.processes[-1].send(number)

    def kill(self) -> None:
        with self._changing:
            self._is_wanted = False
            self.processes[-1].kill()

    def close(self) -> None:
        self.kill()
        self._listening.close()
        for ended in self._ended_alone:
            warnings.warn(f"the web process ended by itself, {ended}", stacklevel=2)


class Line:
    """The way from a worker to its site, which a test may disturb.

    Attributes:
        mode: `open`; `cut`, nothing passes; a number, a proxy answers with a page and this status;
            `twice`, each request comes twice and the second answer
            is given; `lossy`, one answer of three is lost, by chance: in turns it might always be
            that of the same step.
        passed: how often each step reached the site.
        connections: how many workers have opened.
    """

    def __init__(self, target: str, *, context: ssl.SSLContext | None = None) -> None:
        self.mode, self.passed, self.connections = "open", Counter[str](), 0
        self._chance = random.Random(1)
        self._target = target
        line = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            client: httpx.Client  # of this connection, as a proxy has it

            def setup(self) -> None:
                super().setup()
                line.connections += 1
                limits = httpx.Limits(keepalive_expiry=KEEP_SECONDS)
                self.client = httpx.Client(
                    base_url=line._target, timeout=60, limits=limits, trust_env=False
                )

            def finish(self) -> None:
                self.client.close()
                super().finish()

            def do_POST(self) -> None:
                line._pass_on(self, self.client)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _pass_on(self, handler: http.server.BaseHTTPRequestHandler, client: httpx.Client) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        mode = self.mode
        if mode == "cut":
            handler.close_connection = True
            return
        if mode.isdecimal():
            _answer(handler, int(mode), "text/html", b"<h1>Gone</h1>")
            return
        headers = {name: handler.headers[name] for name in _PASSED_HEADERS}
        for _ in range(2 if mode == "twice" else 1):
            try:
                answer = client.post(handler.path, content=body, headers=headers)
            except httpx.HTTPError as error:
                sys.stderr.write(f"{handler.path} was not passed on: {error!r}\n")
                handler.close_connection = True
                return
            self.passed[handler.path.removeprefix(f"{ROOT}/")] += 1
        if self.mode == "cut" or (mode == "lossy" and self._chance.random() < 1 / 3):
            handler.close_connection = True
            return
        content_type = answer.headers["Content-Type"]
        _answer(handler, answer.status_code, content_type, answer.content)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _answer(
    handler: http.server.BaseHTTPRequestHandler, status: int, content_type: str, content: bytes
) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", content_type)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


_PASSED_HEADERS = ("Authorization", "Content-Type", "X-Worker-Protocol", "X-Worker-Name")


@dataclass
class Home:
    """A host with an engine, an empty data folder and a key; nothing of the site is in reach."""

    folder: Path
    environment: dict[str, str]
    url: str
    key: ApiKey
    secret: str
    workers: list[RunningWorker] = field(default_factory=list)

    def start_worker(self, name: str = "gpu", *arguments: str, **env: Any) -> RunningWorker:
        """Start a worker and do not wait."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{name}-{uuid.uuid4().hex[:6]}.log"
        own = {"TTS_DATA_DIR": self.folder, "TTS_CHECKPOINT": TINY, "TTS_API_KEY": self.secret}
        with path.open("wb") as log:
            popen = subprocess.Popen(
                [sys.executable, "manage.py", "worker", "--server", self.url, "--name", name,
                 *arguments],
                cwd=PROJECT,
                env=changed_environment(self.environment, {**own, **CLOCKS, **env}),
                stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        worker = RunningWorker(name, popen, path)
        self.workers.append(worker)
        return worker

    def name_of(self, worker: RunningWorker) -> str:
        """Return the name that the worker's claims carry at the site."""
        return f"{self.key.pk.hex[:12]}/{worker.name}"


@dataclass
class RemoteSetting:
    """A site without an engine, a line to it and a home."""

    pair: Pair
    web: WebProcess
    line: Line
    home: Home


@contextmanager
def remote_setting(
    pair: Pair, clean_env: dict[str, str], folder: Path, *, context: ssl.SSLContext | None = None
) -> Iterator[RemoteSetting]:
    """Run a web process and a worker of files at a site, and make a home with a key of it."""
    user = make_user("operator", is_staff=True)
    key, secret = create_key(user, "home", scopes=["worker"])
    web = WebProcess(pair)
    line = Line(web.url, context=context)
    home = Home(folder, clean_env, line.url, key, secret)
    try:
        pair.start_worker("files", role="cpu")
        yield RemoteSetting(pair, web, line, home)
    finally:
        for worker in home.workers:
            worker.kill()
        line.close()
        web.close()


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return a server's side with a certificate of its own for 127.0.0.1, and that certificate."""
    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a site")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(own.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(own, hashes.SHA256())
    )
    pem, key = folder / "site.pem", folder / "site.key"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    key.write_bytes(own.private_bytes(serialization.Encoding.PEM, form, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    return context, pem
