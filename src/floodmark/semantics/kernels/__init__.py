"""The kernels of stateful steps: windows in columns and row by row, joins, process functions, triggers."""
