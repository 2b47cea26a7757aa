"""What the control plane writes down: streams, drivers, actions, rollouts, and where that is kept."""
