"""Audio as blocks of samples: read, measured, changed, written."""
