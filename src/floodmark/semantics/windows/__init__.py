"""One module per kind of window: which windows a row is in, row by row, in columns and in SQL, beside each other."""
