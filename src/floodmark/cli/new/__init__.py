"""New workspaces: templates, and contracts inferred from files."""
