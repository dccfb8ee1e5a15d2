"""Voices as portable files: one archive holds clips, transcripts, codes and the consent record."""
