"""What a supervisor serves: metrics of all streams for Prometheus, and pages about each stream."""
