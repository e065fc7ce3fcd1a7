"""A run from its start to its end: streams, limits, deadline, killing."""
