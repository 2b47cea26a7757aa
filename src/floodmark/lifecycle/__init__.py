"""Pure decisions about what to run: coverage now."""
