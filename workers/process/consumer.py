"""Run Celery's consumer in a thread of this process: it hears doorbells, the rows do the rest."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from celery.worker import state as celery_state

from workers.celery import app

logger = logging.getLogger(__name__)

RESTART_SECONDS = 2.0


class Consumer(threading.Thread):
    """Consume queues with Celery's thread pool, beginning anew should Celery ever give up.

    The main thread stays free: signals and the drain are ours, since Celery's thread pool can
    neither stop a running task nor bound a shutdown. Remote control, gossip and mingle stay on:
    without them a busy consumer never came back after its Redis was restarted.
    """

    def __init__(self, *, name: str, queues: Sequence[str], concurrency: int) -> None:
        super().__init__(name="consumer", daemon=True)
        self._node, self._queues, self._concurrency = name, list(queues), concurrency
        self._stopper = threading.Event()

    def run(self) -> None:
        """Consume until `stop`."""
        while not self._stopper.is_set():
            try:
                self._consume()
            except (Exception, SystemExit):
                logger.exception("the consumer ended and starts again; work continues meanwhile")
            self._stopper.wait(RESTART_SECONDS)

    def stop(self) -> None:
        """Ask Celery to take no further message; running tasks end by themselves."""
        self._stopper.set()
        celery_state.should_stop = 0  # type: ignore[assignment]  # an exit status; typed as None

    def _consume(self) -> None:
        worker = app.Worker(
            hostname=f"{self._node}@ttsweb",
            pool="threads",
            concurrency=self._concurrency,
            queues=self._queues,
            without_gossip=False,
            without_mingle=False,
            without_heartbeat=False,
            redirect_stdouts=False,
            quiet=True,
            loglevel="INFO",
        )
        worker.start()
