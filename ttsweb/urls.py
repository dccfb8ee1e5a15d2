"""Route requests: the admin, the REST API, its schema, and the health checks."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/v1/", include("voices.urls")),
    path("api/v1/", include("synth.urls")),
]
