"""Small values that many declarations have: columns, cron expressions, shares, tolerances, modes of a run."""
