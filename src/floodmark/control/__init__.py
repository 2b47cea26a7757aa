"""The control plane: desired state of streams, code packages, the supervisor and its drivers, and actions on streams."""
