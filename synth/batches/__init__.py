"""Take many texts at once: read them, make them jobs of one batch, and hand out their files."""
