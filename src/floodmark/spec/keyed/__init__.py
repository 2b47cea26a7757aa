"""The user's code over the rows of a key: process functions, their state and timers."""
