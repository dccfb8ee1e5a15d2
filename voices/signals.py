"""What happens to voices, sent inside the transaction that does it; the jobs that use them listen.

A listener that raises undoes the transaction.
"""

from django.dispatch import Signal

clips_stored = Signal()  # voice, api_key: the key that stored them, or None
voice_silenced = Signal()  # voice: some who could speak with it may not any more
version_ended = Signal()  # version_id: it is ready, or it has failed
