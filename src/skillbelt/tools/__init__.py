"""The tools that a model is offered."""
