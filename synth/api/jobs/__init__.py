"""Serve jobs and their segments over REST."""
