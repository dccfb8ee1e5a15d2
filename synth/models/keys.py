"""Store the API keys of users: what each may do, and how much of it."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models

from ttsweb.rights import DEFAULT_SCOPES, LIMITS, SCOPES


def default_scopes() -> list[str]:
    """Return what a key may do unless something else is said."""
    return list(DEFAULT_SCOPES)


class ApiKey(models.Model):
    """A named key of a user. Only its secret's digest is kept; it is shown once.

    It never has more rights than its user. A limit that is None does not limit.
    """

    class Scope(models.TextChoices):
        READ = "read", SCOPES["read"]
        VOICES = "voices", SCOPES["voices"]
        JOBS = "jobs", SCOPES["jobs"]
        ADMIN = "admin", SCOPES["admin"]
        WORKER = "worker", SCOPES["worker"]

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_keys"
    )
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, unique=True)
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    scopes = models.JSONField(default=default_scopes)
    max_queued_chars = models.PositiveIntegerField(
        null=True,
        blank=True,
        verbose_name=LIMITS["max_queued_chars"],
        help_text=(
            "Limits the characters in this key's texts that are not rendered yet; empty: no limit."
        ),
    )
    max_unfinished_jobs = models.PositiveIntegerField(
        null=True,
        blank=True,
        verbose_name=LIMITS["max_unfinished_jobs"],
        help_text="Limits the jobs of this key that are queued or running; empty: no limit.",
    )
    max_requests_per_minute = models.PositiveIntegerField(
        null=True,
        blank=True,
        verbose_name=LIMITS["max_requests_per_minute"],
        help_text="Limits the requests per clock minute; empty: no limit.",
    )
    max_stored_bytes = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        verbose_name=LIMITS["max_stored_bytes"],
        help_text=(
            "Limits the bytes of the user's clips, finished files and uploaded books together; "
            "empty: no limit."
        ),
    )
    # Requests that processes have taken for themselves in a minute since 1970; see key_rate.
    rate_minute = models.PositiveIntegerField(default=0, editable=False)
    rate_taken = models.PositiveIntegerField(default=0, editable=False)

    class Meta:
        verbose_name = "API key"
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


SYSTEM = "system"
_MOST_CHARS = 40  # of the column


def lane_of(owner_id: int | None, api_key: ApiKey | None) -> str:
    """Return the lane of a job: `key:<id>`, `user:<id>`, or that of the installation itself.

    Lanes of one priority class get the same from the workers, however much each has queued.
    """
    if api_key is not None:
        return f"key:{api_key.pk.hex}"[:_MOST_CHARS]
    return SYSTEM if owner_id is None else f"user:{owner_id}"


class IgnoredField(models.Model):
    """Count the calls of one dialect in which a field was ignored."""

    dialect = models.CharField(max_length=20)
    name = models.CharField(max_length=60)
    count = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("dialect", "name"), name="ignored_field_unique"),
        )

    def __str__(self) -> str:
        return f"{self.dialect} {self.name}={self.count}"
