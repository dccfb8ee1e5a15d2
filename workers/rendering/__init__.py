"""Render segments and encode voices: codes in, takes out, each screened."""
