"""Say which sample rates and bit rates the file of a job may have, by its format."""

from __future__ import annotations

from synth.jobs.rejections import SubmitRejectedError

SAMPLE_RATES = (8000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
OPUS_SAMPLE_RATES = (8000, 12_000, 16_000, 24_000, 48_000)  # Opus knows no others
MIN_BIT_RATE, MAX_BIT_RATE = 6000, 320_000

_OPUS_BIT_RATES = (6000, 256_000)
_AAC_BIT_RATES = (16_000, 256_000)
_AAC_BITS_PER_SAMPLE = 6  # a frame of AAC holds 6,144 bits of each channel and lasts 1,024 samples
# An MP3 has one of a few bit rates, and which ones it may have is a matter of its sample rate.
_MP3_BIT_RATES = tuple(
    1000 * kilobits for kilobits in (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
)
_MP3_MOST = ((12_000, 64_000), (24_000, 160_000), (48_000, 320_000))  # up to this sample rate


def check_file_options(form: str, sample_rate: int | None, bit_rate: int | None) -> None:
    """Refuse a sample rate (Hz) or a bit rate (bits per second) that a format cannot have.

    Raises:
        SubmitRejectedError: sample_rate_unfit or bit_rate_unfit, which name those that fit.
    """
    rates = OPUS_SAMPLE_RATES if form == "opus" else SAMPLE_RATES
    if sample_rate is not None and sample_rate not in rates:
        raise SubmitRejectedError(
            400,
            "sample_rate_unfit",
            f"The format {form} does not support a sample rate of {sample_rate} Hz; choose "
            f"one of {_listed(rates)}.",
            attr="sample_rate",
        )
    if bit_rate is not None:
        _check_bit_rate(form, sample_rate, bit_rate)


def _check_bit_rate(form: str, sample_rate: int | None, bit_rate: int) -> None:
    if form == "mp3":
        most = next(top for rate, top in _MP3_MOST if (sample_rate or 48_000) <= rate)
        choices = [rate for rate in _MP3_BIT_RATES if rate <= most]
        is_fit, expected = bit_rate in choices, f"one of {_listed(choices)}"
    elif form in ("opus", "aac", "m4b"):
        low, high = _OPUS_BIT_RATES if form == "opus" else _AAC_BIT_RATES
        if form in ("aac", "m4b") and sample_rate is not None:
            high = min(high, _AAC_BITS_PER_SAMPLE * sample_rate)
        is_fit, expected = low <= bit_rate <= high, f"{low} to {high}"
    else:
        raise SubmitRejectedError(
            400,
            "bit_rate_unfit",
            f"The format {form} is lossless and has no bit rate. Leave bit_rate out, or "
            "choose mp3, opus or aac.",
            attr="bit_rate",
        )
    if not is_fit:
        of_rate = f" at {sample_rate} Hz" if sample_rate is not None else ""
        raise SubmitRejectedError(
            400,
            "bit_rate_unfit",
            f"The format {form}{of_rate} does not support {bit_rate} bits per second; "
            f"choose {expected}.",
            attr="bit_rate",
        )


def _listed(numbers: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, numbers))
