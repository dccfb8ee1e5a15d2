"""Route lexicons and previews below /api/v1/."""

from __future__ import annotations

from django.urls import path

from synth.api.jobs.preview_views import LexiconPreviewView, PreviewView
from synth.api.lexicons import transfer_views, views

_LEXICON = "lexicons/<uuid:lexicon_id>"

urlpatterns = [
    path("preview", PreviewView.as_view(), name="preview"),
    path("lexicons", views.LexiconsView.as_view(), name="lexicons"),
    path("lexicons/preview", LexiconPreviewView.as_view(), name="lexicons-preview"),
    path(_LEXICON, views.LexiconView.as_view(), name="lexicon"),
    path(f"{_LEXICON}/entries", views.EntriesView.as_view(), name="lexicon-entries"),
    path(f"{_LEXICON}/entries/<int:entry_id>", views.EntryView.as_view(), name="lexicon-entry"),
    path(f"{_LEXICON}/export", transfer_views.LexiconExportView.as_view(), name="lexicon-export"),
    path(f"{_LEXICON}/import", transfer_views.LexiconImportView.as_view(), name="lexicon-import"),
]
