"""Built-in aggregates: one table, each with its laws and its forms by row, in Arrow columns and in SQL; and columns of partial results."""
