"""Formats of the only language that there is."""
