"""Bring a model's published weights into a folder: resumable, checked, under their licence."""
