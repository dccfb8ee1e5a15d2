"""Speak over WebSockets what is still being written."""
