"""Assets: what lands and what is computed, with the settings of each."""
