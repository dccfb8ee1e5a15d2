"""Turn values of settings into the structures that Django, Celery and logging expect."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dj_database_url

from ttsweb.configuration.env import SettingError

# WAL lets readers go on beside a writer; FULL because a 202 is a promise that outlives a power cut.
_SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;"
    "PRAGMA journal_size_limit=67108864;PRAGMA cache_size=-8000"
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
    """Return Django's database entry; SQLite gets the options that concurrent writers need."""
    parsed: dict[str, Any] = dict(
        dj_database_url.parse(url) if url else {"ENGINE": "django.db.backends.sqlite3"}
    )
    if parsed["ENGINE"].endswith("sqlite3"):
        parsed["ENGINE"] = "ttsweb.sqlite"  # Django's, with fair turns for its writers
        parsed["NAME"] = parsed.get("NAME") or data_dir / "db.sqlite3"
        parsed["OPTIONS"] = {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": _SQLITE_PRAGMAS,
        }
        return parsed
    parsed["CONN_MAX_AGE"] = 0
    parsed["CONN_HEALTH_CHECKS"] = True
    parsed.setdefault("OPTIONS", {}).setdefault("connect_timeout", 5)
    return parsed


def broker_settings(redis_url: str | None, *, data_dir: Path) -> dict[str, Any]:
    """Return what the Celery app needs to reach its broker: Redis, or files in the data folder."""
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
        "broker_transport": "ttsweb.file_messages:Transport",
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
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": "INFO"},
        "loggers": {
            "httpx": {"level": "WARNING"},
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


def transcriber_name(name: str) -> str:
    """Return the name of a transcriber's factory; empty is none.

    Raises:
        SettingError: it is not like package.module:factory.
    """
    if name and not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name):
        raise SettingError(
            f"TTS_TRANSCRIBER={name!r}: expected a factory's name such as package.module:factory"
        )
    return name


def voice_aliases(pairs: Sequence[str]) -> dict[str, str]:
    """Return `name=voice` pairs as a mapping from the name in lower case.

    Raises:
        SettingError: a pair lacks a side, or a name comes twice.
    """
    aliases: dict[str, str] = {}
    for pair in pairs:
        name, _, voice = (part.strip() for part in pair.partition("="))
        if not name or not voice:
            raise SettingError(
                "TTS_OPENAI_VOICE_ALIASES: expected a name and a voice such as alloy=Ada, "
                f"not {pair!r}"
            )
        if name.lower() in aliases:
            raise SettingError(f"TTS_OPENAI_VOICE_ALIASES: {name!r} is given twice")
        aliases[name.lower()] = voice
    return aliases
