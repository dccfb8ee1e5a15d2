"""Serve batches of books over REST."""
