"""Read books and plan what is spoken of them: pure functions, no Django, no torch."""
