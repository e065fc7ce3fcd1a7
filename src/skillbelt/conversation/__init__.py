"""A conversation: its state, the messages a model receives, what changed between turns."""
