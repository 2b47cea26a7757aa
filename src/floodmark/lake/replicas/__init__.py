"""Replicas of tables and savepoints in other lakes: the same commits, versions and files, so that a stream resumes there."""
