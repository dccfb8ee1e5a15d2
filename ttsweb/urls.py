"""Route requests: Studio, admin, REST API and schema, other services' dialects, health checks."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

from ttsweb.install.extras import has_extra
from ttsweb.pages.front import DocsView, about_page, front_page, licence_page, studio_page
from ttsweb.pages.health import healthz, readyz
from ttsweb.pages.metrics import MetricsView
from ttsweb.pages.overview import OverviewView, StatsView
from ttsweb.pages.sign_in import AccountView, CodeView, SignInView

admin.autodiscover()  # `admin.site.urls` are those of what is registered

# Without its packages `./tts serve` says how to get them, and does not come to a request.
_HAS_OIDC = settings.OIDC is not None and has_extra("oidc")
_OIDC = [path("", include("ttsweb.pages.oidc"))] if _HAS_OIDC else []

urlpatterns = [
    path("", front_page, name="front"),
    path("studio", admin.site.admin_view(studio_page), name="studio"),
    path("about", about_page, name="about"),
    path("licences", licence_page, name="licences"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", MetricsView.as_view(), name="metrics"),
    path("account", AccountView.as_view(), name="account"),
    path("admin/login/", SignInView.as_view(), name="sign-in"),
    path("admin/login/code", CodeView.as_view(), name="sign-in-code"),
    *_OIDC,
    path("admin/", admin.site.urls),
    path("api/v1/", include("voices.api")),
    path("api/v1/", include("synth.urls")),
    path("api/internal/v1/worker/", include("workers.remote.urls")),
    path("api/v1/stats", StatsView.as_view(), name="stats"),
    path("api/v1/overview", OverviewView.as_view(), name="overview"),
    path("api/v1/schema", SpectacularAPIView.as_view(), name="schema"),
    path("api/v1/docs", DocsView.as_view(), name="docs"),
    path("", include("synth.dialects.urls")),
]

handler400 = "ttsweb.pages.middleware.bad_request"
handler403 = "ttsweb.pages.middleware.permission_denied"
handler404 = "ttsweb.pages.middleware.not_found"
handler500 = "ttsweb.pages.middleware.server_error"
