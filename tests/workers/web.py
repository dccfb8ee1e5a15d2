"""Serve the API on a pair's database and storage, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from django.contrib.auth.models import User

from synth.accounts.access import create_key
from tests.factories import make_user
from tests.workers.pairs import PROJECT, Pair, changed_environment

GRACE_SECONDS = "10"  # for requests that are open when the server is stopped


@contextmanager
def served(pair: Pair, owner: User | None = None, **env: Any) -> Iterator[httpx.Client]:
    """Serve until the block ends; the client has a key of `owner`, or of a new user who sees all.

    The paths are below the server's root.
    """
    user = owner or make_user("listener", is_superuser=True)
    _, key = create_key(user, "test", scopes=["read", "jobs", "voices", "admin"])
    environment = changed_environment(pair.environment, env)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(200)
        arguments = ["-m", "ttsweb.http.listen", str(listening.fileno()), GRACE_SECONDS]
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            cwd=PROJECT,
            pass_fds=[listening.fileno()],
        )
        base_url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        headers = {"Authorization": f"Bearer {key}"}
        limits = httpx.Limits(max_connections=None)
        try:
            with httpx.Client(
                base_url=base_url, headers=headers, timeout=90, limits=limits
            ) as client:
                client.get("/api/v1/jobs").raise_for_status()
                yield client
        finally:
            process.terminate()
            process.wait(180)
