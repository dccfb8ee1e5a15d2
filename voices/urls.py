"""Route the REST API of this app."""

from __future__ import annotations

from django.urls import URLPattern, path

from voices.views import VoiceAudioView, VoiceEncodeView, VoicesView, VoiceView

urlpatterns: list[URLPattern] = [
    path("voices", VoicesView.as_view(), name="voices"),
    path("voices/<uuid:voice_id>", VoiceView.as_view(), name="voice"),
    path("voices/<uuid:voice_id>/encode", VoiceEncodeView.as_view(), name="voice-encode"),
    path("voices/<uuid:voice_id>/audio", VoiceAudioView.as_view(), name="voice-audio"),
]
