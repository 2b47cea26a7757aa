"""Pure foundations: time, errors, fingerprints. Imports nothing else of floodmark."""
