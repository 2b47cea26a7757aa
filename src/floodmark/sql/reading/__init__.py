"""What a text holds beside the statements that sqlglot reads: the header of a file, row patterns, other spellings."""
