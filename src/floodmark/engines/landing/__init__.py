"""Landing as both engines do it: what is read and checked, in which order what is written, what a row of a log looks like. No session in here."""
