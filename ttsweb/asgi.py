"""Serve the project under ASGI."""

from __future__ import annotations

import os

from django.conf import settings
from django.core.asgi import get_asgi_application

from ttsweb.body_limit import BodyLimit

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ttsweb.settings")

application = BodyLimit(get_asgi_application(), max_bytes=settings.MAX_BODY_BYTES)
