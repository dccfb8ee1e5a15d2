"""Declare the synth app."""

from django.apps import AppConfig


class SynthConfig(AppConfig):
    """What is rendered."""

    name = "synth"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Speech"

    def ready(self) -> None:
        """Connect the listeners of signals, which each stand beside what they do."""
        from synth import webhooks  # noqa: F401  # models are loaded only now
        from synth.accounts import limits  # noqa: F401
        from synth.batches import figures  # noqa: F401
        from synth.jobs import queue  # noqa: F401
        from synth.transitions import batches, book_batches, jobs  # noqa: F401
