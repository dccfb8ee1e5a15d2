"""The REST API as a whole: what holds for every route."""
