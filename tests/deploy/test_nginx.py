"""The nginx sample: its syntax, and a real nginx with it in front of a real site."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.sync.client import connect

from synth.models import RenderJob
from tests.sources import PROJECT
from tests.workers.commands import free_port
from tests.workers.conftest import own_folders, pair  # noqa: F401  # fixtures by their names
from tests.workers.pairs import Pair, submit, wait_ended, wait_for
from tests.workers.web import served
from ttsweb.configuration.library import HSTS_SECONDS
from ttsweb.settings import MAX_BODY_BYTES

SAMPLE = (PROJECT / "deploy" / "nginx" / "ttsweb.conf").read_text("utf-8")
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="no nginx was found")
MANY = 30  # sentences: the engine must still have some to do when the first is heard

MAIN = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 128; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/ttsweb.conf;
}}
"""


def write_configuration(folder: Path, *, upstream: str, plain: int, tls: int) -> Path:
    """Write the sample with this machine's ports and a certificate of its own; return the main."""
    certificate, key = folder / "fullchain.pem", folder / "privkey.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    make += [
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
        "-subj",
        "/CN=127.0.0.1",
        "-days",
        "1",
    ]
    subprocess.run(make, check=True, capture_output=True)
    text = SAMPLE
    for there, here in (
        ("127.0.0.1:8000", upstream),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("listen [::]:80;", ""),
        ("listen 443 ssl", f"listen 127.0.0.1:{tls} ssl"),
        ("listen [::]:443 ssl http2;", ""),
        ("server_name tts.example.org", "server_name 127.0.0.1"),
        ("/etc/letsencrypt/live/tts.example.org/fullchain.pem", str(certificate)),
        ("/etc/letsencrypt/live/tts.example.org/privkey.pem", str(key)),
    ):
        assert there in text, there
        text = text.replace(there, here)
    (folder / "ttsweb.conf").write_text(text)
    main = folder / "nginx.conf"
    main.write_text(MAIN.format(folder=folder))
    return main


@contextmanager
def proxied(folder: Path, upstream: str) -> Iterator[tuple[str, str]]:
    """Run nginx with the sample until the block ends; yield its addresses by HTTP and HTTPS."""
    assert NGINX is not None
    plain, tls = free_port(), free_port()
    folder.mkdir()
    main = write_configuration(folder, upstream=upstream, plain=plain, tls=tls)
    command = [NGINX, "-p", str(folder), "-c", str(main)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: _listens(tls), what="nginx listens", seconds=60)
            yield f"http://127.0.0.1:{plain}", f"https://127.0.0.1:{tls}"
        finally:
            process.terminate()
            process.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@needs_nginx
def test_nginx_takes_the_sample(tmp_path: Path) -> None:
    main = write_configuration(tmp_path, upstream="127.0.0.1:8000", plain=1, tls=2)
    assert NGINX is not None
    run = subprocess.run(
        [NGINX, "-t", "-p", tmp_path, "-c", main], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "[warn]" not in run.stderr.replace('the "listen ... http2" directive', "")


def test_bodies_that_the_site_reads_pass() -> None:
    (megabytes,) = re.findall(r"client_max_body_size (\d+)m;", SAMPLE)
    assert MAX_BODY_BYTES <= int(megabytes) * 1024 * 1024 <= 1.1 * MAX_BODY_BYTES


@needs_nginx
@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_live_audio_sockets_and_ranges_pass_through(
    pair: Pair,  # noqa: F811
    tmp_path: Path,
) -> None:
    _, voice = pair.start_with_voice()
    voice.shared = True
    voice.save()
    with served(pair, TTS_BEHIND_HTTPS_PROXY="true") as direct:
        upstream = urlsplit(str(direct.base_url)).netloc
        with proxied(tmp_path / "nginx", upstream) as (plain, secure):
            headers = dict(direct.headers)
            with httpx.Client(base_url=secure, headers=headers, verify=False, timeout=90) as client:
                _check_headers(client, plain)
                job = _hear_while_rendered(client, submit(voice, sentences=MANY))
                _check_ranges(client, job)
            _speak_over_a_socket(secure, direct.headers["Authorization"], str(voice.pk))
            _check_too_large(secure)


def _check_headers(client: httpx.Client, plain: str) -> None:
    strict = f"max-age={HSTS_SECONDS}"
    for path, status in (("/healthz", 200), ("/api/v1/jobs", 200), ("/no-such", 404)):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["Strict-Transport-Security"]) == (status, strict)
    login = client.get("/admin/login/")
    assert "Secure" in login.headers["Set-Cookie"]
    moved = httpx.get(f"{plain}/api/v1/jobs?a=b", follow_redirects=False)
    assert (moved.status_code, moved.headers["Location"]) == (
        301, "https://127.0.0.1/api/v1/jobs?a=b",
    )  # fmt: skip


def _hear_while_rendered(client: httpx.Client, job: RenderJob) -> RenderJob:
    with client.stream("GET", f"/api/v1/jobs/{job.pk}/audio?live=1") as heard:
        assert heard.status_code == 200
        assert heard.headers["Strict-Transport-Security"]
        parts = heard.iter_raw()
        first = next(parts)
        job.refresh_from_db()
        assert first and job.status not in RenderJob.FINAL
        assert sum(map(len, parts)) > 100_000
    wait_ended(job)
    assert job.status == "succeeded"
    return job


def _check_ranges(client: httpx.Client, job: RenderJob) -> None:
    whole = client.get(f"/api/v1/jobs/{job.pk}/audio").content
    part = client.get(f"/api/v1/jobs/{job.pk}/audio", headers={"Range": "bytes=100-299"})
    assert (part.status_code, part.content) == (206, whole[100:300])
    assert part.headers["Content-Range"] == f"bytes 100-299/{len(whole)}"


def _speak_over_a_socket(secure: str, key: str, voice: str) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    address = secure.replace("https", "wss", 1) + "/v1/audio/speech/stream"
    with connect(address, additional_headers={"Authorization": key}, ssl=trusting) as opened:

        def say(kind: str, **values: Any) -> None:
            opened.send(json.dumps({"type": kind, **values}))

        say("session.config", voice=voice, response_format="pcm")
        say("input.text", text="The lamp was lit. Then the ")
        kinds, audio = [], 0
        while "audio.done" not in kinds:  # before the text is complete
            message = opened.recv(180)
            if isinstance(message, bytes):
                audio += len(message)
            else:
                kinds.append(json.loads(message)["type"])
        assert audio > 1000
        say("input.done")
        while "session.done" not in kinds:
            message = opened.recv(180)
            kinds += [] if isinstance(message, bytes) else [json.loads(message)["type"]]


def _check_too_large(secure: str) -> None:
    """A body is refused by its length, before it is sent."""
    place = urlsplit(secure)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((place.hostname, place.port), 60) as raw,
        trusting.wrap_socket(raw) as wrapped,
    ):
        wrapped.sendall(
            b"POST /api/v1/voices HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 300000000\r\n\r\n"
        )
        assert b" 413 " in wrapped.recv(100)
