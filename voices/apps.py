"""Declare the voices app."""

from django.apps import AppConfig


class VoicesConfig(AppConfig):
    """Who speaks."""

    name = "voices"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Speech"  # the sidebar has its pages there, with those of synth

    def ready(self) -> None:
        """Have a user's voices go with the user."""
        from voices.removal import connect_owners  # models are loaded only now

        connect_owners()
