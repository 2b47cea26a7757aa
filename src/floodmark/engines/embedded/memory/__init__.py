"""Runs of an operator over Arrow tables with state in memory and no lake, for ``Case``, proofs and transcripts."""
