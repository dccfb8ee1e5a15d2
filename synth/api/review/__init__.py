"""Serve the review list over REST."""
