"""Nothing secret stands in the logs of a whole run: web process, worker and Celery, as shipped."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from lab.servers import RedisServer
from tests.api.served import Served, serve
from tests.workers.commands import (
    CLIP,
    PATIENCE_SECONDS,
    PROJECT,
    environment_for,
    free_port,
    run_python,
)
from tests.workers.conftest import TINY
from tests.workers.pairs import wait_for

TEXT = "Xylographic quokkas juggle zephyrs."
TRANSCRIPT = "Vexed jackdaws quizzed my fjord glyph."
JSON = "application/json"
PASSWORD, WRONG = "plum-Coloured-Rhinoceros-71", "wrong-Coloured-Rhinoceros-72"
REDIS_PASSWORD = "redis-Coloured-Rhinoceros-73"
SECRET_KEY = "secret-Coloured-Rhinoceros-74-" + "x" * 40
SETTINGS = {"TTS_ALLOW_PRIVATE_URLS": "true", "TTS_URL_REFERENCES": "true"}
TITLE = "Zwölf Boxkämpfer jagen Viktor"


def test_planted_secrets_stand_in_no_log(tmp_path: Path) -> None:
    with serve(tmp_path, **SETTINGS) as served:
        secrets = plant(served)
    log = served.log.read_text(encoding="utf-8")

    assert "segment" in log and "delivery" in log  # of the web process and of the worker
    assert found_in(log, secrets) == set()


@pytest.mark.redis
def test_planted_secrets_stand_in_no_log_beside_redis_and_a_worker_elsewhere(
    tmp_path: Path,
) -> None:
    secrets = {"Redis' password": REDIS_PASSWORD, "secret key": SECRET_KEY}
    (tmp_path / "data").mkdir(mode=0o700)
    redis = RedisServer(tmp_path, password=REDIS_PASSWORD)
    redis.start()
    own = {"TTS_REDIS_URL": redis.url, "TTS_SECRET_KEY": SECRET_KEY}
    try:
        with serve(tmp_path, "--worker", **SETTINGS, **own) as served:
            secrets |= plant(served)
            secrets["worker's key"] = work_elsewhere(
                served, environment_for(tmp_path) | own, tmp_path / "elsewhere"
            )
            # A broker that is away, and one that knows another password, are told of at length.
            redis.kill()
            away = served.api.post("/jobs", json={"text": f"{TEXT} Away.", "voice": "Ada"})
            served.wait_for(f"/jobs/{away.raise_for_status().json()['id']}", "succeeded")
            other = RedisServer(tmp_path, password="another one")
            other.port = redis.port
            other.start()
            try:
                again = served.api.post("/jobs", json={"text": f"{TEXT} Again.", "voice": "Ada"})
                served.wait_for(f"/jobs/{again.raise_for_status().json()['id']}", "succeeded")
                wait_for(
                    lambda: "invalid username-password" in read(served.log),
                    what="the password is refused",
                )
            finally:
                other.kill()
    finally:
        redis.kill()
    log = read(served.log) + read(tmp_path / "elsewhere" / "log")

    assert "segment" in log and "delivery" in log and "Connected to redis" in log
    assert "This API key was revoked" in log
    assert found_in(log, secrets) == set()


def plant(served: Served) -> dict[str, str]:
    """Send secrets of every kind, in requests that pass and in such as fail; return them."""
    nobody = f"http://127.0.0.1:{free_port()}/hook?token=hook-token-of-somebody"
    api, secrets = served.api, {"key": served.key}
    form = {"name": "Ada", "transcript": TRANSCRIPT, "consent_statement": "Yes."}
    files = {"audio": ("clip.wav", CLIP.read_bytes(), "audio/wav")}
    voice = api.post("/voices", data=form, files=files).raise_for_status().json()["id"]
    api.post("/users", json={"username": "eve", "password": PASSWORD}).raise_for_status()
    secrets["made key"] = api.post("/keys", json={"name": "n"}).json()["key"]
    api.post("/webhooks/endpoints", json={"url": nobody}).raise_for_status()
    secrets["webhook secret"] = api.get("/webhooks/secret").json()["secret"]
    secrets["webhook token"] = "hook-token-of-somebody"
    served.wait_for(f"/voices/{voice}", "ready")
    job = api.post("/jobs", json={"text": TEXT, "voice": "Ada"}).raise_for_status().json()
    served.wait_for(f"/jobs/{job['id']}", "succeeded")
    api.get(f"/jobs/{job['id']}/audio").raise_for_status()

    # What goes wrong says more than what goes well.
    reference = {"url": nobody, "transcript": TRANSCRIPT}
    away = api.post("/jobs", json={"text": TEXT, "reference": reference})
    if away.status_code == 202:
        served.wait_for(f"/jobs/{away.json()['id']}", "failed")
    broken = {"audio": ("clip.wav", b"RIFF\0\0\0\0WAVE" + TEXT.encode(), "audio/wav")}
    bad = api.post("/voices", data=form | {"name": "Broken"}, files=broken)
    if bad.status_code == 202:
        served.wait_for(f"/voices/{bad.json()['id']}", "failed")
    book = {"file": ("book.epub", b"PK\3\4" + TEXT.encode(), "application/epub+zip")}
    api.post("/books", files=book)
    api.post("/books", files={"file": (f"{TITLE}.txt", (TEXT + "\n\n").encode() * 3)})
    api.post("/batches", json={"items": [{"text": TEXT, "voice": TEXT}]})
    api.post("/jobs", json={"text": TEXT, "voice": "Ada", TEXT: PASSWORD})
    api.post("/jobs", content=b"{" + TEXT.encode(), headers={"Content-Type": "application/json"})
    api.get("/jobs", params={"status": TEXT})
    bearer = {"Authorization": f"Bearer {served.key[:-1]}x"}
    httpx.get(f"{served.url}/api/v1/jobs/{TEXT}", headers=bearer, timeout=60)
    with httpx.Client(base_url=served.url, timeout=60) as browser:
        for password in (WRONG, "a password of its own"):
            browser.get("/admin/login/")
            token = browser.cookies["csrftoken"]
            fields = {"username": "boss", "password": password, "csrfmiddlewaretoken": token}
            browser.post("/admin/login/", data=fields)
        secrets["session"] = browser.cookies["sessionid"]
    secrets |= {"text": TEXT, "transcript": TRANSCRIPT, "password": PASSWORD, "wrong": WRONG}
    return secrets | {"another": "a password of its own", "title": TITLE}


MAKE_KEY = """
import django; django.setup()
from django.contrib.auth import get_user_model
from synth.accounts.access import create_key
boss = get_user_model().objects.get(username="boss")
print(create_key(boss, "home", scopes=["worker"])[1])
"""
REVOKE_KEY = """
import django; django.setup()
from synth.accounts.access import revoke_key
from synth.models import ApiKey
assert revoke_key(ApiKey.objects.get(name="home"))
"""


def work_elsewhere(served: Served, site: dict[str, str], folder: Path) -> str:
    """Have a worker with a key of its own come, and end as the key is revoked; return the key."""
    key = run_python(site, MAKE_KEY)
    environment = environment_for(folder) | {"TTS_CHECKPOINT": str(TINY), "TTS_API_KEY": key}
    command = [sys.executable, "manage.py", "worker", "--server", served.url, "--name", "home"]
    folder.mkdir()
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command, cwd=PROJECT, env=environment, stdout=log, stderr=subprocess.STDOUT
        ) as worker,
    ):
        try:
            wait_for(lambda: "worker home ready" in read(folder / "log"), what="it is ready")
            run_python(site, REVOKE_KEY)
            assert worker.wait(PATIENCE_SECONDS) == 1
        finally:
            worker.kill()
    return key


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def found_in(log: str, secrets: dict[str, str]) -> set[tuple[str, str]]:
    """Return which secrets a log holds, and in which form."""
    return {
        (name, form)
        for name, secret in secrets.items()
        for form in (secret, quote(secret), json.dumps(secret)[1:-1], _base64(secret))
        if form in log
    }


def _base64(secret: str) -> str:
    return base64.b64encode(secret.encode()).decode()[:-4]
