"""Tell which codecs this installation speaks, by what its workers say of themselves."""

from __future__ import annotations

import datetime as dt

from django.conf import settings

from synth.models import WorkerStatus
from ttsweb import leases


def known_codecs() -> set[str]:
    """Return the fingerprints of the codecs of all workers that there are rows of."""
    rows = WorkerStatus.objects.exclude(codec_fingerprint="")
    return set(rows.values_list("codec_fingerprint", flat=True))


def loaded_codecs() -> set[str]:
    """Return the fingerprints of the codecs that ready and living workers have loaded."""
    silence = dt.timedelta(seconds=2 * settings.LEASE_SECONDS)
    rows = WorkerStatus.objects.filter(
        state=WorkerStatus.State.READY, last_seen_at__gt=leases.database_now() - silence
    ).exclude(codec_fingerprint="")
    return set(rows.values_list("codec_fingerprint", flat=True))
