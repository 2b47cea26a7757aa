"""What an orchestrator shows: assets, promotion rules, scheduled rollouts."""
