"""People in front of a served site: their browsers, and an OpenID provider that knows them."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.workers.commands import environment_for, run_python, serving

_MAKE = """
import django; django.setup()
from django.conf import settings
from django.contrib.auth.models import User
from synth.accounts.access import create_key
from ttsweb.migration import migrate_once
migrate_once(settings.DATA_DIR)
boss = User.objects.create_superuser("boss", "boss@example.org", "a password of its own")
User.objects.create_user("ann", "ann@example.org", "another password", is_staff=True)
print(create_key(boss, "test", scopes=["read", "jobs", "voices", "admin"])[1])
"""


@dataclass
class Place:
    """A served site, its database, and its superuser's key."""

    url: str
    environment: dict[str, str]
    key: str

    def run(self, code: str) -> str:
        return run_python(
            self.environment,
            "import django; django.setup()\nfrom django.contrib.auth.models import User\n"
            f"from synth.models import *\n{code}",
        )

    def users(self) -> dict[str, Any]:
        """Return what the API says of each user, by name."""
        answer = httpx.get(f"{self.url}/api/v1/users?limit=200", headers=self.headers)
        return {one["username"]: one for one in answer.raise_for_status().json()["results"]}

    def change_user(self, name: str, **values: Any) -> None:
        address = f"{self.url}/api/v1/users/{self.users()[name]['id']}"
        httpx.patch(address, json=values, headers=self.headers).raise_for_status()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@contextmanager
def place_in(folder: Path, **settings: str) -> Iterator[Place]:
    environment = environment_for(folder) | settings
    key = run_python(environment, _MAKE)
    with serving(environment, "--no-worker") as (_, said):
        yield Place(said["url"].rstrip("/"), environment, key)


class Browser(httpx.Client):
    """Somebody's browser; `address` is where it connects from."""

    def __init__(self, url: str, address: str = "127.0.0.1", **headers: str) -> None:
        transport = httpx.HTTPTransport(local_address=address)
        super().__init__(base_url=url, transport=transport, headers=headers, timeout=60)

    def send_form(self, path: str, **fields: Any) -> httpx.Response:
        """Open a page and send its form."""
        self.get(path).raise_for_status()
        fields["csrfmiddlewaretoken"] = self.cookies["csrftoken"]
        return self.post(path, data=fields)

    def log_in(self, name: str, password: str) -> httpx.Response:
        return self.send_form("/admin/login/?next=/account", username=name, password=password)

    def name(self) -> str:
        """Return as whom the site knows this browser, empty for nobody."""
        page = self.get("/account")
        if page.status_code != 200:
            return ""
        found = re.search(r'data-user="([^"]*)"', page.text)
        assert found is not None
        return found[1]


CLIENT_ID, CLIENT_SECRET = "ttsweb", "p@ss/word:1"


@dataclass
class Provider:
    """An OpenID provider: what it says of whoever comes next, and how it errs."""

    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    errs: dict[str, Any] = field(default_factory=dict)  # claims that are wrong on purpose
    userinfo: dict[str, Any] = field(default_factory=dict)
    key: Any = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    signs_with: Any = None
    asked: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/keys",
        }

    def keys(self) -> dict[str, Any]:
        one = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [one | {"kid": "first", "alg": "RS256", "use": "sig"}]}

    def token(self, nonce: str) -> str:
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": nonce}
        claims = {k: v for k, v in (usual | self.claims | self.errs).items() if v is not None}
        signer = self.signs_with or self.key
        return jwt.encode(claims, signer, algorithm="RS256", headers={"kid": "first"})


@contextmanager
def provider_at_work() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            """Say nothing."""

        def answer(self, body: Any, status: int = 200) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            provider.asked.append(parts.path)
            if parts.path.endswith("/.well-known/openid-configuration"):
                self.answer(provider.document())
            elif parts.path.endswith("/keys"):
                self.answer(provider.keys())
            elif parts.path.endswith("/userinfo"):
                self.answer(provider.userinfo)
            elif parts.path.endswith("/authorize"):
                query = {name: one[0] for name, one in parse_qs(parts.query).items()}
                code = f"code-{len(provider.codes)}"
                provider.codes[code] = query
                back = urlencode({"code": code, "state": query["state"]})
                self.send_response(302)
                self.send_header("Location", f"{query['redirect_uri']}?{back}")
                self.send_header("Content-Length", "0")
                self.end_headers()

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            provider.asked.append(urlsplit(self.path).path)
            query = provider.codes.pop(form["code"][0], None)
            basic = httpx.BasicAuth(CLIENT_ID, CLIENT_SECRET)._auth_header
            is_client = self.headers.get("Authorization") == basic
            if query is None or not is_client or "code_verifier" not in form:
                self.answer({"error": "invalid_grant"}, 400)
                return
            token = provider.token(query["nonce"])
            self.answer({"access_token": "a", "token_type": "Bearer", "id_token": token})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}/realms/x"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
