"""Processes of the control plane: the supervisor, drivers, and what runs periodically beside them."""
