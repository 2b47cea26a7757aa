"""The kernel: windows, accumulators, firing and lateness. Pure; what both engines run."""
