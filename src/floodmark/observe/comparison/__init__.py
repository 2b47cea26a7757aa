"""Two versions of a table compared: what is compared, how rows are paired, what the columns hold."""
