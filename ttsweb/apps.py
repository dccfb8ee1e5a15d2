"""Load the Celery app with Django, so that web processes can publish."""

from __future__ import annotations

from django.apps import AppConfig, apps


class TtswebConfig(AppConfig):
    """Wire the project together once all apps are loaded."""

    name = "ttsweb"

    def ready(self) -> None:
        """Make our Celery app the current one and register the system checks."""
        from ttsweb import checks  # noqa: F401
        from workers import celery  # noqa: F401

        apps.get_app_config("auth").verbose_name = "Access"  # as the sidebar calls it
