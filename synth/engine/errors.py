"""Name everything the engine refuses or fails at on purpose."""

from __future__ import annotations

from synth.contract import CodedError


class EngineError(CodedError):
    """Base of every error the engine raises on purpose; its text says what a person can do."""

    code = "engine_error"


class CheckpointError(EngineError):
    """A checkpoint file is missing, unreadable or does not fit; the text names the key or file."""

    code = "checkpoint_invalid"


class PromptTooLongError(EngineError):
    """Reference codes and text together exceed the slow AR's positions."""

    code = "prompt_too_long"

    def __init__(self, *, positions: int, limit: int) -> None:
        super().__init__(
            f"The prompt needs {positions} positions, but at most {limit} are allowed; use "
            "a shorter text or a shorter reference clip."
        )
        self.positions, self.limit = positions, limit


class InvalidSpecError(EngineError):
    """A request's values are outside what the model can take."""

    code = "invalid_request"


class SlotsDoNotFitError(EngineError):
    """The slots asked for, or even one, do not fit into the device's memory; nothing was taken."""

    code = "slots_do_not_fit"


class NonFiniteLogitsError(EngineError):
    """The model produced NaN or infinity for one request."""

    code = "non_finite_logits"


class ReferenceAudioError(EngineError):
    """A reference waveform cannot be encoded: empty, of the wrong rank, or not finite."""

    code = "reference_audio_invalid"


class ResamplerUnavailableError(EngineError):
    """The resampler that a setting asks for cannot be used here."""

    code = "resampler_unavailable"


class DeviceOutOfMemoryError(EngineError):
    """The device had no memory left for a batch; a smaller one may pass."""

    code = "out_of_memory"
    retryable = True


class RenderCancelledError(EngineError):
    """The request was cancelled before it ended."""

    code = "cancelled"


class DeadlineExceededError(EngineError):
    """The time that a request was given passed before it ended."""

    code = "deadline_exceeded"

    def __init__(self, *, seconds: float, where: str) -> None:
        super().__init__(
            f"The deadline of {seconds:g} s passed {where}; allow more time, or submit less "
            "at once."
        )


class EngineClosedError(EngineError):
    """The engine is shutting down; another worker can take the request."""

    code = "engine_closed"
    retryable = True
