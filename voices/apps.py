"""Declare the voices app."""

from django.apps import AppConfig


class VoicesConfig(AppConfig):
    """Who speaks."""

    name = "voices"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Speech"  # the sidebar has its pages there, with those of synth

    def ready(self) -> None:
        """Have a user's voices go with the user."""
        from voices.owner_removal import connect  # models are loaded only now

        connect()
