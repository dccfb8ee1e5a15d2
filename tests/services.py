"""What some tests need beside Python: whether it is here, and if not, why not.

Each check returns None when the thing is here, else the reason as a sentence's end.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import psycopg

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find_redis_server() -> str | None:
    """Return the program that `TTS_TEST_REDIS_SERVER` names, or the one on the PATH."""
    return shutil.which(os.environ.get("TTS_TEST_REDIS_SERVER") or "redis-server")


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def why_no_redis() -> str | None:
    if find_redis_server() is None:
        return "no redis-server program was found (TTS_TEST_REDIS_SERVER may name one)"
    return None


def why_no_postgres() -> str | None:
    url = os.environ.get("TTS_TEST_POSTGRES_URL")
    if not url:
        return "TTS_TEST_POSTGRES_URL names no PostgreSQL server"
    try:
        with psycopg.connect(url, connect_timeout=5):
            return None
    except psycopg.Error as error:
        return f"the server of TTS_TEST_POSTGRES_URL does not answer: {type(error).__name__}"


def why_no_browser() -> str | None:
    if find_browser() is None:
        return "no Chromium was found"
    return None if shutil.which("chromedriver") else "no chromedriver was found"


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


CHECKS: dict[str, Callable[[], str | None]] = {
    "redis": why_no_redis,
    "postgres": why_no_postgres,
    "browser": why_no_browser,
    "compiler": why_no_compiler,
    "gpu": why_no_gpu,
    "checkpoint": why_no_checkpoint,
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
