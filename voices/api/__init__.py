"""Serve voices over REST."""
