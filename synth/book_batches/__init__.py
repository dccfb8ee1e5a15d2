"""Make many books at once: a manifest's entries, samples first, the rest by turns, a summary."""
