"""Route requests: Studio, admin, REST API and schema, calls like OpenAI's, health checks."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

from ttsweb.pages.about import DocsView, about_page, licence_page
from ttsweb.pages.health import healthz, readyz
from ttsweb.pages.overview import OverviewView, StatsView
from ttsweb.pages.studio import front_page, studio_page

urlpatterns = [
    path("", front_page, name="front"),
    path("studio", admin.site.admin_view(studio_page), name="studio"),
    path("about", about_page, name="about"),
    path("licences", licence_page, name="licences"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("admin/", admin.site.urls),
    path("api/v1/", include("voices.urls")),
    path("api/v1/", include("synth.urls")),
    path("api/v1/stats", StatsView.as_view(), name="stats"),
    path("api/v1/overview", OverviewView.as_view(), name="overview"),
    path("api/v1/schema", SpectacularAPIView.as_view(), name="schema"),
    path("v1/", include("synth.openai.urls")),
    path("api/v1/docs", DocsView.as_view(), name="docs"),
]

handler400 = "ttsweb.http.error_pages.bad_request"
handler403 = "ttsweb.http.error_pages.permission_denied"
handler404 = "ttsweb.http.error_pages.not_found"
handler500 = "ttsweb.http.error_pages.server_error"
