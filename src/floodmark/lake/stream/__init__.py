"""A stream's own records: timeline, checkpoint, positions, identity, clock, fence."""
