"""Serve voices over REST: the routes."""

from __future__ import annotations

from django.urls import URLPattern, path

from voices.api import views

urlpatterns: list[URLPattern] = [
    path("voices", views.VoicesView.as_view(), name="voices"),
    path("voices/import", views.VoiceImportView.as_view(), name="voices-import"),
    path("voices/import/codes", views.VoiceCodesImportView.as_view(), name="voices-import-codes"),
    path("voices/<uuid:voice_id>", views.VoiceView.as_view(), name="voice"),
    path("voices/<uuid:voice_id>/encode", views.encode_voice, name="voice-encode"),
    path("voices/<uuid:voice_id>/audio", views.VoiceAudioView.as_view(), name="voice-audio"),
    path("voices/<uuid:voice_id>/export", views.VoiceExportView.as_view(), name="voice-export"),
    path("transcripts", views.TranscriptsView.as_view(), name="voice-transcripts"),
    path(
        "transcripts/<uuid:transcript_id>",
        views.TranscriptView.as_view(),
        name="voice-transcript",
    ),
]
