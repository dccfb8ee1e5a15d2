"""Turn values of settings into the structures that Django, Celery and logging expect."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, parse_qsl, unquote, urlsplit

import dj_database_url

from ttsweb.configuration.env import PROJECT_DIR, SettingError

# WAL lets readers go on beside a writer; FULL because a 202 is a promise that outlives a power cut.
_SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA journal_size_limit=67108864"
)


def read_or_make_secret_key(given: str | None, *, path: Path, is_embedded: bool) -> str:
    """Return the given key, or the generated one of this data folder; make it when it is not there.

    Raises:
        SettingError: no key was given and processes on other hosts could not read ours,
            or the folder cannot be written.
    """
    if given:
        return given
    if not is_embedded:
        raise SettingError(
            "TTS_SECRET_KEY is not set. With TTS_DATABASE_URL or TTS_REDIS_URL every "
            "process needs the same key; set it to 50 random characters"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _publish_key(path, secrets.token_urlsafe(50))
        key = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingError(
            f"the secret key {path} cannot be read or created ({error.strerror}); set "
            "TTS_DATA_DIR to a folder that can be written, or set TTS_SECRET_KEY"
        ) from error
    if len(key) < 20:
        raise SettingError(
            f"the secret key in {path} is too short; delete the file, and a new one is made"
        )
    return key


def _publish_key(path: Path, key: str) -> None:
    """Write `key` with mode 0600 in one atomic step; of two processes the first one's key stays."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key)
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def database_settings(url: str | None, *, data_dir: Path) -> dict[str, Any]:
    """Return the entry of Django's DATABASES.

    Raises:
        SettingError: SQLite's file would be in a folder that is not there and cannot be made.
    """
    parsed: dict[str, Any] = dict(
        dj_database_url.parse(url) if url else {"ENGINE": "django.db.backends.sqlite3"}
    )
    if parsed["ENGINE"].endswith("sqlite3"):
        parsed["ENGINE"] = "ttsweb.sqlite"  # Django's, with fair turns for its writers
        parsed["NAME"] = parsed.get("NAME") or data_dir / "db.sqlite3"
        _make_folder_of(Path(parsed["NAME"]))
        parsed["OPTIONS"] = {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": _SQLITE_PRAGMAS,
        }
        return parsed
    parsed["CONN_MAX_AGE"] = 0
    parsed["CONN_HEALTH_CHECKS"] = True
    # What was sent and is not received, or a silence: a host that is gone sends no end of anything.
    patience = {"connect_timeout": 5, "tcp_user_timeout": 30_000, "keepalives_idle": 15,
                "keepalives_interval": 5, "keepalives_count": 3}  # fmt: skip
    parsed["OPTIONS"] = patience | parsed.get("OPTIONS", {})
    return parsed


def _make_folder_of(database: Path) -> None:
    """Make the folder of a SQLite file, which SQLite itself does not, for this user alone."""
    try:
        database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingError(
            f"the folder of the database {database} cannot be made ({error.strerror}); set "
            "TTS_DATA_DIR to a folder that can be written, or TTS_DATABASE_URL"
        ) from error


_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_QUERY = ("endpoint", "region", "signed_urls")


def storage_settings(value: str, *, data_dir: Path) -> tuple[Path | None, dict[str, Any]]:
    """Return the storage's folder, if it is one, and the entry of Django's STORAGES.

    Raises:
        SettingError: the address of a bucket is wrong, or its packages are missing.
    """
    if "://" not in value:
        if "\0" in value:
            raise SettingError("TTS_STORAGE: expected a path")
        folder = PROJECT_DIR / Path(value).expanduser() if value else data_dir / "storage"
        backend = "ttsweb.storage.AtomicFileSystemStorage"
        return folder, {"BACKEND": backend, "OPTIONS": {"location": folder}}
    options = _bucket_options(value)
    if find_spec("boto3") is None:
        raise SettingError("TTS_STORAGE names a bucket, which needs a package: ./tts install s3")
    return None, {"BACKEND": "ttsweb.s3.S3Storage", "OPTIONS": options}


def _bucket_options(value: str) -> dict[str, Any]:
    """Read s3://bucket/prefix?endpoint=...; the sentences never repeat what may be a secret."""
    try:
        parts = urlsplit(value)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise SettingError("TTS_STORAGE: the address cannot be read") from None
    if parts.scheme != "s3":
        raise SettingError("TTS_STORAGE: expected a folder, or s3://bucket/prefix")
    if "@" in parts.netloc:
        raise SettingError(
            "TTS_STORAGE: credentials do not belong into the address; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
    if not _BUCKET.fullmatch(parts.netloc):
        raise SettingError(f"TTS_STORAGE: {parts.netloc!r} is not the name of a bucket")
    if parts.fragment:
        raise SettingError("TTS_STORAGE: `#` has no meaning in the address; write %23")
    steps = parts.path.strip("/").split("/") if parts.path.strip("/") else []
    if any(step in ("", ".", "..") for step in steps):
        raise SettingError("TTS_STORAGE: the prefix has an empty part, `.` or `..`")
    query = dict(pairs)
    if unknown := sorted(query.keys() - set(_QUERY)):
        known = ", ".join(_QUERY)
        raise SettingError(f"TTS_STORAGE: {unknown[0]!r} is unknown; the address takes {known}")
    if len(query) < len(pairs) or "" in query.values():
        raise SettingError("TTS_STORAGE: each name behind `?` stands once and has a value")
    if query.get("signed_urls", "true") not in ("true", "false"):
        raise SettingError("TTS_STORAGE: signed_urls is true or false")
    if (endpoint := query.get("endpoint")) is not None:
        _check_endpoint(endpoint)
    return {
        "bucket": parts.netloc,
        "prefix": "".join(f"{step}/" for step in steps),
        "endpoint": endpoint,
        "region": query.get("region"),
        "signed_urls": query.get("signed_urls") == "true",
    }


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_good = is_good and (parts.port or 1) > 0 and "@" not in parts.netloc
    except ValueError:
        is_good = False
    if not is_good or parts.path.strip("/") or parts.query or parts.fragment:
        raise SettingError("TTS_STORAGE: endpoint is an address such as https://host:port")


def broker_settings(redis_url: str | None, *, data_dir: Path) -> dict[str, Any]:
    if redis_url:
        return {
            "broker_url": redis_url,
            "broker_transport_options": {
                "visibility_timeout": 3600,
                # A half-open socket otherwise blocks a publish for ever.
                "socket_connect_timeout": 2,
                "socket_timeout": 10,
                "socket_keepalive": True,
                "health_check_interval": 10,
                "global_keyprefix": "tts:",
            },
        }
    queue = data_dir / "queue"
    return {
        "broker_url": "filesystem://localhost",  # kombu warns of an empty host name
        "broker_transport": "ttsweb.work:Transport",
        "broker_transport_options": {
            "data_folder_in": str(queue / "messages"),
            "data_folder_out": str(queue / "messages"),
            "control_folder": str(queue / "control"),
            "polling_interval": 0.1,
        },
    }


def logging_settings(*, form: str) -> dict[str, Any]:
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "ttsweb.log_format.LineFormatter", "form": form}},
        "filters": {"routes": {"()": "ttsweb.log_format.RouteFilter"}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "line",
                "filters": ["routes"],
            }
        },
        "root": {"handlers": ["stderr"], "level": "INFO"},
        "loggers": {
            "httpx": {"level": "WARNING"},
            "botocore": {"level": "WARNING"},
            "kombu": {"level": "WARNING"},
            "amqp": {"level": "WARNING"},
            # Two lines a message, which say less than ours.
            "celery.app.trace": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
        },
    }


def trusted_origins(hosts: Sequence[str]) -> list[str]:
    """Return the origins of the site's own pages behind a proxy with HTTPS, as Django spells them.

    A name that begins with a dot stands for all names below it as well.
    """
    named = [host for host in hosts if host != "*"]
    below = [f"https://*{host}" for host in named if host.startswith(".")]
    return [f"https://{host.removeprefix('.')}" for host in named] + below


# The transcribers that have a name of their own, with their factories.
TRANSCRIBERS = {"pocketsphinx": "workers.rendering.pocketsphinx:PocketSphinx"}


def transcriber_name(name: str) -> str:
    """Return the name of a transcriber's factory; empty is none.

    Raises:
        SettingError: it is neither one of ours nor like package.module:factory.
    """
    name = TRANSCRIBERS.get(name, name)
    if name and not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name):
        raise SettingError(
            f"TTS_TRANSCRIBER={name!r}: expected {' or '.join(TRANSCRIBERS)}, or a factory's name "
            "such as package.module:factory"
        )
    return name


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@,]+", re.IGNORECASE)


def cors_origins(origins: Sequence[str]) -> list[str]:
    """Return the origins whose pages may call the API; `*` stands for all.

    Raises:
        SettingError: one is not like https://chat.example.org, without a path.
    """
    found = [origin.removesuffix("/") for origin in origins]
    for origin in found:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise SettingError(
                f"TTS_CORS_ORIGINS: expected origins such as https://chat.example.org, or *, not "
                f"{origin!r}"
            )
    return found


@dataclass(frozen=True)
class Provider:
    """An OpenID provider that people sign in with, and what it knows this site by."""

    issuer: str
    client_id: str
    client_secret: str

    @property
    def name(self) -> str:
        return urlsplit(self.issuer).hostname or self.issuer


def openid_provider(url: str | None) -> Provider | None:
    """Return what TTS_OIDC_URL names; its error never shows the secret.

    Raises:
        SettingError: it is not like https://client-id:client-secret@issuer.example/realms/x.
    """
    if url is None:
        return None
    parts = _split_url(url)
    near = parts is not None and parts.hostname in ("localhost", "127.0.0.1", "::1")
    schemes = ("https", "http") if near else ("https",)  # a secret goes over the network encrypted
    if (
        parts is None or parts.scheme not in schemes or not parts.username or not parts.password
        or parts.query or parts.fragment
    ):  # fmt: skip
        raise SettingError(
            "TTS_OIDC_URL: expected an address like https://client-id:client-secret@"
            "issuer.example/realms/x, with `%40` for an @ in the secret; http:// only on this "
            "machine"
        )
    host = parts.netloc.rpartition("@")[2]
    issuer = f"{parts.scheme}://{host}{parts.path}"
    return Provider(issuer, unquote(parts.username), unquote(parts.password))


@dataclass(frozen=True)
class LoginHeader:
    """The header in which a reverse proxy names the user, and the addresses of such proxies."""

    name: str
    proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]

    def is_proxy(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        peer = getattr(peer, "ipv4_mapped", None) or peer
        return any(peer in network for network in self.proxies)


def login_header(text: str) -> LoginHeader | None:
    """Return what TTS_LOGIN_HEADER names; nothing where it is empty.

    Raises:
        SettingError: it is not like X-Remote-User@10.0.0.5,127.0.0.1, or a proxy's address is one
            of the public Internet: whoever can send from it could be anybody here.
    """
    if not text:
        return None
    name, at, addresses = text.partition("@")
    problem = SettingError(
        f"TTS_LOGIN_HEADER={text!r}: expected a header's name, an @ and the addresses of the "
        "reverse proxies that set it, such as X-Remote-User@127.0.0.1,10.0.0.5; addresses and "
        "networks are private ones"
    )
    if not at or not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", name) or name.lower() in _TAKEN_HEADERS:
        raise problem
    try:
        networks = tuple(ipaddress.ip_network(one.strip()) for one in addresses.split(","))
    except ValueError as error:
        raise problem from error
    if not all(one.is_private and not one.is_unspecified for one in networks):
        raise problem
    return LoginHeader(name.lower(), networks)


# What a proxy does not say who somebody is by.
_TAKEN_HEADERS = ("authorization", "api-key", "xi-api-key", "cookie", "host", "x-forwarded-for")


@dataclass(frozen=True)
class MailServer:
    """Where e-mail notices are handed over, and whom they are from."""

    host: str
    port: int
    user: str
    password: str
    sender: str
    is_tls: bool  # from the first byte; else STARTTLS where the server offers it


def mail_server(url: str | None) -> MailServer | None:
    """Return what TTS_SMTP_URL names; its error never shows the password.

    Raises:
        SettingError: it is not like smtp://user:password@host:587/?from=tts@example.org.
    """
    if url is None:
        return None
    parts = _split_url(url)
    query = parse_qs(parts.query) if parts is not None else {}
    senders = query.pop("from", [])
    if (
        parts is None or parts.scheme not in ("smtp", "smtps") or not parts.hostname
        or parts.path not in ("", "/") or query or len(senders) != 1
        or not re.fullmatch(r"[^\s@<>,;:]+@[^\s@<>,;:]+", senders[0])
        or bool(parts.username) != bool(parts.password)
    ):  # fmt: skip
        raise SettingError(
            "TTS_SMTP_URL: expected an address like smtp://user:password@host:587/?from="
            "tts@example.org, or smtps:// for port 465"
        )
    is_tls = parts.scheme == "smtps"
    return MailServer(
        parts.hostname, parts.port or (465 if is_tls else 587), unquote(parts.username or ""),
        unquote(parts.password or ""), senders[0], is_tls,
    )  # fmt: skip


def _split_url(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        return parts if parts.hostname and (parts.port or 1) > 0 else None
    except ValueError:
        return None
