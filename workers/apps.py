"""Declare the workers app, which has commands and no models."""

from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "workers"
