"""Codec weights in files: published, converted, loaded, named."""
