"""Check at start what would otherwise fail later (filled by the system checks of this project)."""
