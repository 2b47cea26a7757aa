"""Bounded runs on the embedded engine: frames on Sail, kernels in processes of their own."""
