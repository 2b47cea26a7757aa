"""Runs of an operator over Arrow tables with state in memory and no lake: what ``Case``, proofs and transcripts run on."""
