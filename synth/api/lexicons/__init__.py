"""Serve lexicons over REST."""
