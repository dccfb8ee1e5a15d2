"""Load the Celery app with Django, so that web processes can publish."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from ttsweb.private_files import keep_files_private, mend_modes

# The server's side of it: rows that a host had locked, which is gone, are free again.
_PATIENCE = (
    "SET idle_in_transaction_session_timeout = '60s'; SET tcp_keepalives_idle = 15;"
    "SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 30000"
)


def _set_patience(connection: BaseDatabaseWrapper, **named: Any) -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_PATIENCE)


class TtswebConfig(AppConfig):
    name = "ttsweb"

    def ready(self) -> None:
        keep_files_private()
        connection_created.connect(_set_patience)
        mend_modes(settings.DATA_DIR, settings.STORAGE_DIR)
        from ttsweb.work import make_app  # models are loaded only now

        make_app().set_default()

        apps.get_app_config("auth").verbose_name = "Access"  # as the sidebar calls it


class AdminConfig(SimpleAdminConfig):
    """Load the admin's pages with the URLs, not with Django: a worker has no use for them."""

    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(_check_admin, checks.Tags.admin)


def _check_admin(app_configs: Any, **given: Any) -> list[checks.CheckMessage]:
    admin.autodiscover()
    return check_admin_app(app_configs, **given)
