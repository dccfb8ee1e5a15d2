"""Serve calls as other speech services have them, so that their clients work unchanged."""
