"""The verbs, one module for each noun."""
