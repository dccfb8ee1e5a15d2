"""Route what is below /v1/."""

from __future__ import annotations

from django.urls import path, re_path

from synth.openai.catalogue import ModelsView, ModelView, VoicesView, VoiceView
from synth.openai.errors import UnknownRouteView
from synth.openai.speech_views import SpeechResultView, SpeechView

urlpatterns = [
    path("models", ModelsView.as_view(), name="v1-models"),
    path("models/<path:name>", ModelView.as_view(), name="v1-model"),
    path("audio/models", ModelsView.as_view(), name="v1-audio-models"),
    path("audio/speech", SpeechView.as_view(), name="v1-speeches"),
    path("audio/speech/<uuid:job_id>", SpeechResultView.as_view(), name="v1-speech"),
    path("audio/voices", VoicesView.as_view(), name="v1-voices"),
    path("audio/voices/<str:voice_id>", VoiceView.as_view(), name="v1-voice"),
    re_path(r"^", UnknownRouteView.as_view(), name="v1-unknown"),
]
