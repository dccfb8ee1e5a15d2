"""The files of a book beside its job's: asked for, named, known again, let go."""
