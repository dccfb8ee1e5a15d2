"""What happens to voices, sent inside the transaction that does it, and what voices have to ask.

Those who use voices listen. A listener that raises undoes the transaction.
"""

from typing import Any

from django.dispatch import Signal

clips_stored = Signal()  # voice, api_key: the key that stored them, or None
voice_silenced = Signal()  # voice: some who could speak with it may not any more
version_ended = Signal()  # version_id: it is ready, or it has failed

# Questions, which listeners answer by what they return.
codecs_asked = Signal()  # is_loaded: by a ready worker, else by any ever; a set of fingerprints
uses_asked = Signal()  # is_over: the use has ended, or has not; a query of versions' ids


def answers_to(question: Signal, **about: Any) -> list[Any]:
    """Return what all listeners answer."""
    return [answer for _, answer in question.send(None, **about)]
