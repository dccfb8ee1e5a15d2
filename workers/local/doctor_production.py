"""Look at what makes an installation fit for others: HTTPS, secrets, services, backups."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis
from django.conf import settings
from django.core import checks
from django.db import connection
from django.utils import timezone

from synth.models import SweepTurn, WorkerStatus
from ttsweb.configuration.env import PROJECT_DIR
from ttsweb.leases import database_now
from ttsweb.pages.health import HEARTBEAT_SECONDS
from ttsweb.private_files import PRIVATE_UMASK
from ttsweb.work import CPU, RENDER, ROLES
from workers.local.doctor import Check, Finding, database_is_made, fail, ok, warn

MAX_SKEW_SECONDS = 1.0  # of a host whose clock is kept by NTP
MOST_BACKUP_HOURS = 48
LEAST_FREE_SHARE, LEAST_FREE_BYTES = 0.1, 5_000_000_000
LEAST_KEY_CHARS, LEAST_KEY_KINDS = 50, 5  # as Django's own check has it
_LOCAL = {"localhost", "127.0.0.1", "[::1]", "host.docker.internal"}
_CONNECT_SECONDS = 3


def look_at_deployment() -> Finding:
    """Run Django's own checks of a deployment."""
    found = checks.run_checks(include_deployment_checks=True)
    found = [one for one in found if one.id not in settings.SILENCED_SYSTEM_CHECKS]
    if not found:
        return ok("Django's check --deploy finds nothing")
    said = "; ".join(f"{one.id}: {one.msg.partition('. ')[0].rstrip('.')}" for one in found)
    is_serious = any(one.is_serious() for one in found)
    remedy = (
        "what TTS_BEHIND_HTTPS_PROXY=true and a long TTS_SECRET_KEY leave is in Django's manual"
    )
    return (fail if is_serious else warn)(said, remedy)


def look_at_https() -> Finding:
    if not settings.BEHIND_HTTPS_PROXY:
        return fail(
            "keys and passwords would go over the network in clear",
            "put a proxy with HTTPS in front (deploy/nginx/ttsweb.conf), and set "
            "TTS_BEHIND_HTTPS_PROXY=true",
        )
    days = settings.SECURE_HSTS_SECONDS // 86_400
    return ok(f"behind a proxy with HTTPS; browsers are told to use nothing else for {days} days")


def look_at_hosts() -> Finding:
    hosts = settings.ALLOWED_HOSTS
    if "*" in hosts:
        return fail("every Host header is accepted", "name the site's own in TTS_ALLOWED_HOSTS")
    if set(hosts) <= _LOCAL:
        return fail(
            "the site answers under this machine's own names alone",
            "put the name that people use into TTS_ALLOWED_HOSTS",
        )
    opened = []
    if "*" in settings.CORS_ORIGINS:
        opened.append("pages of every origin may call the API (TTS_CORS_ORIGINS=*)")
    if settings.ALLOW_PRIVATE_URLS:
        opened.append(
            "whoever has a key reaches services on private addresses (TTS_ALLOW_PRIVATE_URLS)"
        )
    if opened:
        return warn("; ".join(opened), "take it back unless it has to be so")
    return ok(", ".join(hosts))


def look_at_secret_key() -> Finding:
    key = settings.SECRET_KEY
    if len(key) < LEAST_KEY_CHARS or len(set(key)) < LEAST_KEY_KINDS:
        return fail(
            f"TTS_SECRET_KEY has {len(key)} characters, {len(set(key))} different ones",
            "make one with `openssl rand -hex 32`; put the former one into "
            "TTS_SECRET_KEY_FALLBACKS and run ./tts reencrypt",
        )
    if settings.SECRET_KEY_FALLBACKS:
        return warn(
            "a former secret key is still accepted",
            "run ./tts reencrypt, then take TTS_SECRET_KEY_FALLBACKS away",
        )
    return ok(f"{len(key)} characters")


def look_at_database_access() -> Finding:
    """Say whether the database asks for a password."""
    if connection.vendor != "postgresql":
        return warn(
            "SQLite serves the processes of one host",
            "with more than one host set TTS_DATABASE_URL to PostgreSQL",
        )
    values = connection.settings_dict
    parts = {"host": values["HOST"], "port": values["PORT"], "user": values["USER"]}
    given = {name: value for name, value in parts.items() if value}
    try:
        psycopg.connect(
            dbname=values["NAME"], password="", passfile="/nonexistent",
            connect_timeout=_CONNECT_SECONDS, **given,
        ).close()  # fmt: skip
    except psycopg.OperationalError as error:
        if "password" in str(error) or "authentication" in str(error):
            return ok("PostgreSQL asks for a password")
        raise
    return fail(
        "PostgreSQL lets this user in without a password",
        "write scram-sha-256 instead of trust into pg_hba.conf, and a password into "
        "TTS_DATABASE_URL",
    )


def look_at_redis() -> Finding:
    """Say whether Redis asks for a password and keeps every message."""
    if settings.REDIS_URL is None:
        return warn(
            "messages go through files, between the processes of one host",
            "with more than one host set TTS_REDIS_URL",
        )
    parts = urlsplit(settings.REDIS_URL)
    if _answers_without_password(parts.hostname or "localhost", parts.port or 6379, parts.scheme):
        return fail(
            "Redis answers without a password",
            "set requirepass, and TTS_REDIS_URL=redis://:PASSWORD@…; whoever can write to it "
            "can make work",
        )
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=_CONNECT_SECONDS) as client:
        policy = str(client.info("memory").get("maxmemory_policy", "unknown"))
    if policy != "noeviction":
        return fail(
            f"Redis may throw messages away when its memory is full ({policy})",
            "redis-server --maxmemory-policy noeviction",
        )
    return ok("Redis asks for a password and evicts nothing")


def _answers_without_password(host: str, port: int, scheme: str) -> bool:
    """Ask by another connection: a server without a password takes any that is sent to it."""
    try:
        with redis.Redis(
            host=host, port=port, ssl=scheme == "rediss", socket_timeout=_CONNECT_SECONDS
        ) as client:
            return bool(client.ping())
    except redis.AuthenticationError:
        return False
    except redis.ResponseError as error:  # NOAUTH of older servers
        if "NOAUTH" in str(error):
            return False
        raise


def look_at_disk() -> Finding:
    folders = [folder for folder in (settings.DATA_DIR, settings.STORAGE_DIR) if folder]
    said, is_scarce = [], False
    for folder in dict.fromkeys(folders):
        while not folder.exists():
            folder = folder.parent
        usage = shutil.disk_usage(folder)
        is_scarce |= usage.free < max(LEAST_FREE_BYTES, LEAST_FREE_SHARE * usage.total)
        said.append(f"{folder}: {usage.free / 1e9:.1f} of {usage.total / 1e9:.1f} GB free")
    text = "; ".join(said)
    if is_scarce:
        return warn(text, "make room, or set TTS_RETENTION_DAYS, before workers stop at 200 MB")
    return ok(text)


def look_at_care() -> Finding:
    """Say how old the newest backup is."""
    if not has_tables():
        return warn("the database has no tables yet", "start ./tts serve, which makes them")
    made = SweepTurn.objects.filter(name=SweepTurn.BACKUP).values_list("next_at", flat=True).first()
    if made is None:
        return warn("./tts backup was never run", "run it daily, into a folder on another disk")
    age = (database_now() - made).total_seconds() / 3600
    if age > MOST_BACKUP_HOURS:
        text = f"the newest backup is {age / 24:.0f} days old"
        return warn(text, "see why ./tts backup did not run")
    return ok(f"the newest backup is {age:.0f} hours old")


def look_at_clock() -> Finding:
    if connection.vendor == "sqlite":
        return ok("the database is on this host")
    skew = (database_now() - timezone.now()).total_seconds()
    text = f"the database's clock and this host's differ by {abs(skew):.2f} s"
    if abs(skew) > MAX_SKEW_SECONDS:
        return warn(text, "let both hosts take their time by NTP")
    return ok(text)


def look_at_roles() -> Finding:
    """Say whether every kind of work has a worker that lives."""
    if not has_tables():
        return warn("the database has no tables yet", "start ./tts serve, which makes them")
    now = database_now()
    served: set[str] = set()
    able = (WorkerStatus.State.READY, WorkerStatus.State.UNLOADED)  # which loads when work comes
    for row in WorkerStatus.objects.filter(state__in=able):
        if (now - row.last_seen_at).total_seconds() <= HEARTBEAT_SECONDS:
            served |= set(ROLES.get(row.role, ()))
    missing = [role for role, queue in (("gpu", RENDER), ("cpu", CPU)) if queue not in served]
    if missing:
        roles = " and ".join(missing)
        commands = ", ".join(f"./tts worker --role {role}" for role in missing)
        return fail(f"no worker of the role {roles} is ready", f"start {commands}")
    return ok("workers for every kind of work are ready")


def look_at_modes() -> Finding:
    """Say whether others on this host can read what is the service's own."""
    own = [settings.DATA_DIR, settings.DATA_DIR / "secret_key", PROJECT_DIR / ".env"]
    own.append(Path(str(connection.settings_dict["NAME"])))
    opened = [str(path) for path in _existing(own) if _mode(path) & PRIVATE_UMASK]
    if opened:
        return fail(f"others can read {', '.join(opened)}", f"chmod go= {' '.join(opened)}")
    if os.geteuid() == 0:
        return warn("this runs as root", "run it as a user of its own (deploy/systemd)")
    return ok("only this user can read the data folder and the settings")


def has_tables() -> bool:
    return database_is_made() and SweepTurn._meta.db_table in connection.introspection.table_names()


def _existing(paths: list[Path]) -> Iterator[Path]:
    return (path for path in paths if path.is_absolute() and path.exists())


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("deploy", look_at_deployment),
    ("https", look_at_https),
    ("hosts", look_at_hosts),
    ("secret", look_at_secret_key),
    ("postgres", look_at_database_access),
    ("redis", look_at_redis),
    ("disk", look_at_disk),
    ("backup", look_at_care),
    ("clock", look_at_clock),
    ("roles", look_at_roles),
    ("modes", look_at_modes),
)
