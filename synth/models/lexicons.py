"""Store lexicons: how words are spoken, whatever the text writes."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from voices.models import Voice


class Lexicon(models.Model):
    """A named list of entries of a user. Without an owner it is everybody's.

    A `global` one applies to every job of its owner (or of all users), a `voice` one to what its
    voice speaks, a `named` one where a job asks for it.
    """

    class Scope(models.TextChoices):
        GLOBAL = "global"
        VOICE = "voice"
        NAMED = "named"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="lexicons",
    )
    name = models.CharField(max_length=100)
    scope = models.CharField(max_length=10, choices=Scope, default=Scope.NAMED)
    voice = models.ForeignKey(
        Voice, null=True, blank=True, on_delete=models.CASCADE, related_name="lexicons"
    )
    language = models.CharField(max_length=35, blank=True, default="")
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "lexicons"
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(
                Lower("name"),
                "owner",
                condition=Q(owner__isnull=False),
                name="lexicon_name_unique_per_owner",
            ),
            models.UniqueConstraint(
                Lower("name"),
                condition=Q(owner__isnull=True),
                name="lexicon_name_unique_without_owner",
            ),
        )

    def __str__(self) -> str:
        return self.name


class LexiconEntry(models.Model):
    """One rule: where `find` stands in a text, `say` is spoken."""

    class Kind(models.TextChoices):
        LITERAL = "literal"
        WORD = "word"
        REGEX = "regex"

    lexicon = models.ForeignKey(Lexicon, on_delete=models.CASCADE, related_name="entries")
    index = models.PositiveIntegerField(default=0)
    find = models.CharField(max_length=500)
    say = models.CharField(max_length=500, blank=True, default="")
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.WORD)
    case_sensitive = models.BooleanField(default=False)
    language = models.CharField(max_length=35, blank=True, default="")
    enabled = models.BooleanField(default=True)

    class Meta:
        verbose_name_plural = "lexicon entries"
        ordering = ("index", "pk")

    def __str__(self) -> str:
        return self.find
