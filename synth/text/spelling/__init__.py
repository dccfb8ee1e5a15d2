"""Spell out numbers, dates, sums, units and abbreviations."""
