"""Route the calls of other services' dialects; each address also with a slash behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern, include, path, re_path
from django.views.decorators.csrf import csrf_exempt

from synth.dialects.elevenlabs import (
    KEY_HEADER,
    ElevenLabsModelsView,
    ElevenLabsSpeechResultView,
    ElevenLabsSpeechView,
    ElevenLabsVoicesView,
    ElevenLabsVoiceView,
)
from synth.dialects.fish import (
    FishHealthView,
    FishModelsView,
    FishModelView,
    FishSpeechResultView,
    FishSpeechView,
)
from synth.dialects.openai_catalogue import (
    AliveView,
    ModelsView,
    ModelView,
    VoicesView,
    VoiceView,
)
from synth.dialects.openai_speech import SpeechResultView, SpeechView
from synth.dialects.socket_protocols import FishSocketView, SocketView
from synth.dialects.views import UnknownRouteView

View = Callable[..., HttpResponseBase]


@csrf_exempt  # as all views of REST are
def list_models(request: HttpRequest) -> HttpResponseBase:
    """Answer at an address of two dialects: ElevenLabs' clients have their key elsewhere."""
    view: Any = ElevenLabsModelsView if KEY_HEADER in request.headers else ModelsView
    answer: HttpResponseBase = view.as_view()(request)
    return answer


_OPENAI: dict[str, tuple[View, str]] = {
    "models": (list_models, "v1-models"),
    "models/<path:name>": (ModelView.as_view(), "v1-model"),
    "audio/models": (ModelsView.as_view(), "v1-audio-models"),
    "audio/speech": (SpeechView.as_view(), "v1-speeches"),
    "audio/speech/stream": (SocketView.as_view(), "v1-speech-socket"),
    "audio/speech/<uuid:job_id>": (SpeechResultView.as_view(), "v1-speech"),
    "audio/voices": (VoicesView.as_view(), "v1-voices"),
    "audio/voices/<str:voice_id>": (VoiceView.as_view(), "v1-voice"),
    "test": (AliveView.as_view(), "v1-test"),
}
_ELEVENLABS: dict[str, tuple[View, str]] = {
    "text-to-speech/<str:voice_id>": (ElevenLabsSpeechView.as_view(), "elevenlabs-speeches"),
    "text-to-speech/<str:voice_id>/stream": (ElevenLabsSpeechView.as_view(), "elevenlabs-streams"),
    "text-to-speech/results/<uuid:job_id>": (
        ElevenLabsSpeechResultView.as_view(),
        "elevenlabs-speech",
    ),
    "voices": (ElevenLabsVoicesView.as_view(), "elevenlabs-voices"),
    "voices/<str:voice_id>": (ElevenLabsVoiceView.as_view(), "elevenlabs-voice"),
}
_FISH: dict[str, tuple[View, str]] = {
    "tts": (FishSpeechView.as_view(), "fish-speeches"),
    "tts/live": (FishSocketView.as_view(), "fish-socket"),
    "tts/<uuid:job_id>": (FishSpeechResultView.as_view(), "fish-speech"),
    "health": (FishHealthView.as_view(), "fish-health"),
}
_FISH_VOICES: dict[str, tuple[View, str]] = {
    "model": (FishModelsView.as_view(), "fish-models"),
    "model/<str:model_id>": (FishModelView.as_view(), "fish-model"),
}


def _routes(views: Mapping[str, tuple[View, str]], *, is_named: bool = True) -> list[URLPattern]:
    """Return routes; those at another than their usual place have no names."""
    return [
        path(route + slash, view, name=name if is_named and not slash else None)
        for route, (view, name) in views.items()
        for slash in ("", "/")
    ]


_DEPLOYED = "openai/deployments/<str:deployment>/audio/speech"

urlpatterns = [
    path("v1/", include(_routes({**_OPENAI, **_ELEVENLABS, **_FISH}))),
    path("", include(_routes(_FISH_VOICES))),
    path("openai/v1/", include(_routes(_OPENAI, is_named=False))),
    path(_DEPLOYED, SpeechView.as_view()),
    path(f"{_DEPLOYED}/", SpeechView.as_view()),
    re_path("^(?:v1|openai)/", UnknownRouteView.as_view()),
]
