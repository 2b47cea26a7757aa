"""The folder of a lake: its paths, reads and writes in it, links and copies, locks."""
