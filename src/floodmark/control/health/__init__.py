"""Health of supervised streams: judged from what is recorded of them, and told by alerts when it changes."""
