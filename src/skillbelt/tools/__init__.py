"""The tools that are offered to a model."""
