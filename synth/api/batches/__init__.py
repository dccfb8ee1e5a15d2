"""Serve batches of texts over REST."""
