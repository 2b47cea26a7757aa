"""Real data in the box: the flights of 2013 as files that arrive, and the answers computed without floodmark."""
