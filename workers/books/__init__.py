"""Read uploaded books, and make the files of rendered ones."""
