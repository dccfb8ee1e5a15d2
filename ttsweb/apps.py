"""Load the Celery app with Django, so that web processes can publish."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.conf import settings

from ttsweb.private_files import keep_files_private, mend_modes


class TtswebConfig(AppConfig):
    name = "ttsweb"

    def ready(self) -> None:
        keep_files_private()
        mend_modes(settings.DATA_DIR, settings.STORAGE_DIR)
        from workers import celery  # noqa: F401

        apps.get_app_config("auth").verbose_name = "Access"  # as the sidebar calls it
