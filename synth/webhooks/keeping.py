"""Let go of what webhooks leave behind: old deliveries and secrets that sign no more."""

from __future__ import annotations

import datetime as dt

from synth.models import WebhookDelivery, WebhookSecret
from synth.webhooks.signing import PREVIOUS_SIGNS_FOR
from ttsweb import leases

KEPT_FOR = dt.timedelta(days=30)


def forget_webhooks() -> int:
    """Delete deliveries that ended KEPT_FOR ago, and previous secrets; return how many of both."""
    now = leases.database_now()
    ended = WebhookDelivery.objects.filter(finished_at__lt=now - KEPT_FOR)
    deleted, _ = ended.delete()
    rotated = WebhookSecret.objects.filter(rotated_at__lt=now - PREVIOUS_SIGNS_FOR)
    return deleted + rotated.exclude(encrypted_previous="").update(encrypted_previous="")
