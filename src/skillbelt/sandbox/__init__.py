"""Sandboxes that run a skill's commands. All share one contract and one list of attacks."""
