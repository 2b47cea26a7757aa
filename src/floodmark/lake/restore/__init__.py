"""Ways back and aside: savepoints, rollback, forks, arms of experiments, ends of input."""
