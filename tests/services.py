"""What some tests need beside Python: whether it is here, and if not, why not.

Each check returns None when the thing is here, else the reason as a sentence's end.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from lab.servers import find_postgres, find_redis, why_no_redis
from tests.clients import official
from ttsweb.commands.base import StepError
from ttsweb.install.extras import has_extra

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def why_no_postgres() -> str | None:
    url = os.environ.get("TTS_TEST_POSTGRES_URL")
    if not url:
        return "TTS_TEST_POSTGRES_URL names no PostgreSQL server"
    try:
        with psycopg.connect(url, connect_timeout=5):
            return None
    except psycopg.Error as error:
        return f"the server of TTS_TEST_POSTGRES_URL does not answer: {type(error).__name__}"


@contextmanager
def postgres_database(template: str = "/template1") -> Iterator[str]:
    """Give the address of a new PostgreSQL database, and drop it afterwards.

    It is a copy of the one whose address is `template`.
    """
    server = urlsplit(os.environ["TTS_TEST_POSTGRES_URL"])
    name = f"ttsweb_test_{uuid.uuid4().hex[:12]}"
    made, copied = sql.Identifier(name), sql.Identifier(urlsplit(template).path[1:])
    with psycopg.connect(server.geturl(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(made, copied))
        try:
            yield server._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(made))


def why_no_browser() -> str | None:
    if find_browser() and shutil.which("chromedriver"):
        return None
    return f"no {'chromedriver' if find_browser() else 'Chromium'} was found"


def why_no_gpu() -> str | None:
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    return None if torch.cuda.is_available() else "no CUDA device is here"


def why_no_checkpoint() -> str | None:
    folder = os.environ.get("TTS_TEST_CHECKPOINT")
    if not folder:
        return "TTS_TEST_CHECKPOINT names no checkpoint"
    return None if (Path(folder) / "config.json").is_file() else f"{folder} has no config.json"


def why_no_compiler() -> str | None:
    """Look for a C compiler, and for a processor that compiled frames are written for."""
    try:
        from synth.engine.native.build import find_compiler, processor_flags
    except ImportError:
        return "PyTorch is not installed"
    if find_compiler() is None:
        return "no C compiler was found"
    return None if "avx2" in processor_flags() else "this processor has no AVX2"


def why_no_hosts() -> str | None:
    """Try to make a network namespace, and look for what runs in them."""
    if os.geteuid() or not shutil.which("ip"):
        return "network namespaces need root and the program ip"
    if find_postgres() is None or find_redis() is None:
        return "the programs of PostgreSQL and Redis are not both here"
    name = f"tts{os.getpid()}-try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this system allows no network namespaces"
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return None


def find_helm() -> str | None:
    """Return Helm's program: the one that tests/deploy/install_helm brought, or another one."""
    own = Path(sys.prefix) / "bin" / "helm"
    return str(own) if own.is_file() else shutil.which("helm")


def why_no_helm() -> str | None:
    return None if find_helm() else "no helm program was found (tests/deploy/install_helm)"


def why_no_advisories() -> str | None:
    if find_spec("pip_audit") is None:
        return "pip-audit is not installed"
    probe = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "-r", os.devnull]
    with tempfile.TemporaryDirectory() as folder:
        pin = Path(folder) / "pin"
        pin.write_text("pip==26.3\n")
        probe[-1] = str(pin)
        ended = subprocess.run([*probe, "--timeout", "5"], capture_output=True, check=False)
    # 1 is what it ends with where there is a fault, too.
    is_answer = ended.returncode == 0 or b"Found " in ended.stderr
    is_answer &= b"could not be audited" not in ended.stdout + ended.stderr
    return None if is_answer else "the service of the Python advisories does not answer"


def why_no_flite() -> str | None:
    """Look for the voices that the demo checkpoint is taught by."""
    for name in ("libflite.so.1", "libflite_cmu_us_slt.so.1"):
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            return "flite and its voices are not installed"
    return None


def why_no_evaluation() -> str | None:
    """Look for the speech that the evaluation compares with, and for what judges it."""
    if (reason := why_no_flite()) is not None:
        return reason
    if not has_extra("asr"):
        return "PocketSphinx is not installed"
    try:
        from lab.training.evaluation.speaker_embedding import find_weights

        find_weights()
    except (ImportError, StepError):
        return "PyTorch and the weights of Resemblyzer are not both installed"
    return None


CHECKS: dict[str, Callable[[], str | None]] = {
    "redis": why_no_redis,
    "postgres": why_no_postgres,
    "browser": why_no_browser,
    "compiler": why_no_compiler,
    "helm": why_no_helm,
    "clients": official.why_no_clients,
    "node_clients": official.why_no_node_clients,
    "gpu": why_no_gpu,
    "checkpoint": why_no_checkpoint,
    "hosts": why_no_hosts,
    "advisories": why_no_advisories,
    "flite": why_no_flite,
    "evaluation": why_no_evaluation,
}


@functools.cache
def why_missing(service: str) -> str | None:
    """Return the reason why `service`, a key of `CHECKS`, is not here; it is looked for once."""
    return CHECKS[service]()


def required_services(value: str) -> frozenset[str]:
    """Return the services that `TTS_TEST_REQUIRE` lists.

    Raises:
        ValueError: a name is not a key of `CHECKS`.
    """
    names = frozenset(name.strip() for name in value.split(",") if name.strip())
    if unknown := sorted(names - set(CHECKS)):
        raise ValueError(
            f"TTS_TEST_REQUIRE={value!r}: {', '.join(unknown)} is none of {', '.join(CHECKS)}"
        )
    return names
