"""Verbs that look and change nothing: streams live, tables compared, results and state served."""
