"""Serve webhooks over REST."""
