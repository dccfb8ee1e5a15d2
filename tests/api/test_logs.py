"""Nothing secret stands in the logs of a whole run: web process, worker and Celery, as shipped."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import httpx

from tests.api.served import serve
from tests.workers.commands import CLIP, free_port

TEXT = "Xylographic quokkas juggle zephyrs."
TRANSCRIPT = "Vexed jackdaws quizzed my fjord glyph."
JSON = "application/json"
PASSWORD, WRONG = "plum-Coloured-Rhinoceros-71", "wrong-Coloured-Rhinoceros-72"
TITLE = "Zwölf Boxkämpfer jagen Viktor"


def test_planted_secrets_stand_in_no_log(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/hook?token=hook-token-of-somebody"
    with serve(tmp_path, TTS_ALLOW_PRIVATE_URLS="true", TTS_URL_REFERENCES="true") as served:
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
        api.post(
            "/jobs", content=b"{" + TEXT.encode(), headers={"Content-Type": "application/json"}
        )
        api.get("/jobs", params={"status": TEXT})
        bearer = {"Authorization": f"Bearer {served.key[:-1]}x"}
        httpx.get(f"{served.url}/api/v1/jobs/{TEXT}", headers=bearer)
        with httpx.Client(base_url=served.url) as browser:
            for password in (WRONG, "a password of its own"):
                browser.get("/admin/login/")
                token = browser.cookies["csrftoken"]
                fields = {"username": "boss", "password": password, "csrfmiddlewaretoken": token}
                browser.post("/admin/login/", data=fields)
            secrets["session"] = browser.cookies["sessionid"]
    secrets |= {"text": TEXT, "transcript": TRANSCRIPT, "password": PASSWORD, "wrong": WRONG}
    secrets |= {"another": "a password of its own", "title": TITLE}
    log = served.log.read_text(encoding="utf-8")

    assert "segment" in log and "webhook" in log  # of the web process and of the worker
    found = {
        (name, form)
        for name, secret in secrets.items()
        for form in (secret, quote(secret), json.dumps(secret)[1:-1], _base64(secret))
        if form in log
    }
    assert found == set()


def _base64(secret: str) -> str:
    return base64.b64encode(secret.encode()).decode()[:-4]
