"""What Sail answers as Spark does: the SQL it is given, and the refusal of everything else."""
