"""Serve books, their plans and their files over REST."""
