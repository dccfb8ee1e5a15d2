"""Run an S3 server for tests, on one address, until a block ends: moto's, in a process of its own.

What it keeps is in its memory and goes with it. A request that changes something is done alone, so
that of two writers with `If-None-Match: *` one wins, as with the servers that people run.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 120.0
PROJECT = Path(__file__).resolve().parents[1]
# Clients sign with these; the server takes any.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests-secret"}
REGION = "us-east-1"
Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


@dataclass(frozen=True)
class S3Server:
    """A running server; `environment` is what its clients need beside the address."""

    endpoint: str
    process: subprocess.Popen[bytes]

    @property
    def environment(self) -> dict[str, str]:
        return dict(CREDENTIALS)

    def storage_url(
        self, bucket: str, prefix: str = "", *, endpoint: str = "", **query: str
    ) -> str:
        """Return a value of TTS_STORAGE; `endpoint` stands for the server, such as a proxy's."""
        path = f"{bucket}/{prefix}".rstrip("/")
        pairs = {"endpoint": endpoint or self.endpoint, "region": REGION} | query
        return f"s3://{path}?" + "&".join(f"{name}={value}" for name, value in pairs.items())

    def client(self) -> Any:
        """Return a client of boto3 that sees what is there."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def make_bucket(self, name: str) -> str:
        self.client().create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the names of all objects below a prefix."""
        pages = (
            self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        )
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def stop(self) -> None:
        """Let it answer nobody, as a server that hangs; connections are still taken."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def s3_server(
    *, host: str = "127.0.0.1", port: int = 0, prefix: Sequence[str] = (), log: Path | None = None
) -> Iterator[S3Server]:
    """Run a server until the block ends.

    Args:
        port: 0 takes a free one of this machine.
        prefix: words before the command, such as `ip netns exec NAME`; this process has to reach
            `host` without them.
        log: file of what it says.

    Raises:
        RuntimeError: it did not start.
    """
    if not port:
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = probe.getsockname()[1]
    command = [*prefix, sys.executable, "-m", "lab.s3_server", "--host", host, "--port", str(port)]
    output = log.open("wb") if log else subprocess.DEVNULL
    with subprocess.Popen(command, cwd=PROJECT, stdout=output, stderr=output) as process:
        try:
            _wait_until_it_listens(process, host, port)
            yield S3Server(f"http://{host}:{port}", process)
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def _wait_until_it_listens(process: subprocess.Popen[bytes], host: str, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection((host, port), timeout=1.0).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the S3 server did not start on {host}:{port}") from error
            time.sleep(0.05)


def one_change_at_a_time(application: Application) -> Application:
    """Let requests that change something through one by one, each once its body is here."""
    lock = threading.Lock()

    def run(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return application(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with lock:
            return application(environ | {"wsgi.input": io.BytesIO(body)}, start_response)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    os.environ["MOTO_PORT"] = str(options.port)
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import run_simple

    run_simple(
        options.host,
        options.port,
        one_change_at_a_time(create_backend_app("s3")),
        threaded=True,
        request_handler=MotoRequestHandler,
    )


if __name__ == "__main__":
    main()
