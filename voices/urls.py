"""Route the REST API of this app."""

from __future__ import annotations

from django.urls import URLPattern, path

from voices.api.portable_views import VoiceCodesImportView, VoiceExportView, VoiceImportView
from voices.api.views import VoiceAudioView, VoicesView, VoiceView, encode_voice

urlpatterns: list[URLPattern] = [
    path("voices", VoicesView.as_view(), name="voices"),
    path("voices/import", VoiceImportView.as_view(), name="voices-import"),
    path("voices/import/codes", VoiceCodesImportView.as_view(), name="voices-import-codes"),
    path("voices/<uuid:voice_id>", VoiceView.as_view(), name="voice"),
    path("voices/<uuid:voice_id>/encode", encode_voice, name="voice-encode"),
    path("voices/<uuid:voice_id>/audio", VoiceAudioView.as_view(), name="voice-audio"),
    path("voices/<uuid:voice_id>/export", VoiceExportView.as_view(), name="voice-export"),
]
