"""Skills in other agent frameworks. Each module needs its framework, and nothing else does."""
