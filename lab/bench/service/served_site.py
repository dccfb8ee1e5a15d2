"""Run a real site with its worker in an empty database, for benchmarks that send requests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import get_user_model

from lab.bench.service.child import say
from lab.bench.service.e2e_rounds import make_voice, refuse_used_database
from synth.accounts.access import create_key
from ttsweb.commands.terminal import Progress
from ttsweb.http import listen
from voices.submit import NewClip
from workers.local.demo import DEMO_CLIP
from workers.local.local_worker import LocalWorker
from workers.local.site import Site

HOST = "127.0.0.1"
FIRST_PORT = 18_000


@dataclass(frozen=True)
class ServedSite:
    """Where the site is, the headers of a user's key, and the worker beside it."""

    url: str
    headers: dict[str, str]
    worker: LocalWorker

    def make_demo_voice(self) -> str:
        """Return the id of a voice of the demo's clip once it is encoded."""
        clip = NewClip(transcript=DEMO_CLIP.transcript, content=DEMO_CLIP.path.read_bytes())
        return str(make_voice("bench", clip, self.worker).pk)


@contextmanager
def serve_site() -> Iterator[ServedSite]:
    """Serve while the block runs.

    Raises:
        StepError: database_in_use, worker_failed, web_failed.
    """
    refuse_used_database()
    worker = LocalWorker(log_path=settings.DATA_DIR / "logs" / "worker.log")
    site = Site(listen.open_socket(HOST, FIRST_PORT, or_next=True), worker, log=worker.log)
    try:
        say(progress="starting a worker")
        worker.wait_ready(Progress(sys.stderr))
        site.wait_answering()
        user = get_user_model().objects.create_user("bench")
        headers = {"Authorization": f"Bearer {create_key(user, 'bench')[1]}"}
        yield ServedSite(site.url, headers, worker)
    finally:
        site.stop()
