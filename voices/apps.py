"""Declare the voices app."""

from django.apps import AppConfig
from django.db.models.signals import pre_delete


class VoicesConfig(AppConfig):
    name = "voices"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Speech"  # the sidebar has its pages there, with those of synth

    def ready(self) -> None:
        """Have every deletion of a user, wherever it happens, let go of the voices first."""
        from django.contrib.auth import get_user_model  # models are loaded only now

        from voices.objects import delete_voices_of

        sender = get_user_model()
        pre_delete.connect(delete_voices_of, sender=sender, dispatch_uid="voices of a user")
