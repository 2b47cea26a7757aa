"""A Delta table as its log has it: commits and their records, entries, files, rows, changes and history."""
