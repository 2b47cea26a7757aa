"""One Spark session: its settings, the code it sends to workers, its scratch folder."""
