"""Progressive delivery: experiments, promotion of an arm, rollouts by a schedule."""
