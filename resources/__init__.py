"""Resources: where a workspace acts, per environment. The only place that reads the environment."""
