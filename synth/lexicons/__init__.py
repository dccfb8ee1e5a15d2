"""Lexicons: how words are spoken, kept, checked, carried in and out, and applied."""
