"""Load checkpoints, and know how much memory that takes."""
