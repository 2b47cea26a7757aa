"""Delta tables as Spark writes and reads them: outputs, current values, recorded processing time."""
