"""Declare the voices app."""

from django.apps import AppConfig


class VoicesConfig(AppConfig):
    """Who speaks."""

    name = "voices"
    default_auto_field = "django.db.models.BigAutoField"
