"""Declare the synth app."""

from django.apps import AppConfig


class SynthConfig(AppConfig):
    """What is rendered."""

    name = "synth"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Speech"
