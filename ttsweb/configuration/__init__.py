"""Read every setting once, from `TTS_` variables and `.env`, and describe it."""
