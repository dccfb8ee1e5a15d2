"""Build the Celery app. Messages carry ids only; rows decide."""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery
from kombu import Queue

from ttsweb.work import CPU, ROLES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ttsweb.settings")


def make_app() -> Celery:
    """Return the configured app; the file transport's folders are made, for this user alone."""
    from django.conf import settings

    options = settings.CELERY["broker_transport_options"]
    for name in ("data_folder_in", "control_folder"):
        if name in options:
            Path(options[name]).mkdir(parents=True, exist_ok=True, mode=0o700)
    celery_app = Celery("ttsweb")
    celery_app.conf.update(settings.CELERY)
    celery_app.conf.update(
        result_backend=None,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        result_accept_content=["json"],
        task_acks_late=False,  # the lease owns the work, not the acknowledgement
        task_reject_on_worker_lost=False,
        worker_prefetch_multiplier=1,
        # Off, together with gossip and mingle, a busy worker never came back after a Redis restart.
        worker_enable_remote_control=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_soft_shutdown_timeout=0,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        task_publish_retry_policy={
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.1,
            "interval_max": 0.1,
        },
        task_create_missing_queues=False,
        task_queues=[Queue(name) for name in ROLES["all"]],
        task_default_queue=CPU,
        imports=("workers.tasks",),
    )
    return celery_app


app = make_app()
app.set_default()
