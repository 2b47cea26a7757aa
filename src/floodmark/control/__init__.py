"""Who runs what: desired state, packages of code, the supervisor and its drivers."""
