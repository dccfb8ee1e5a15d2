"""Route the REST API of this app."""

from __future__ import annotations

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
