"""Skills in other agent frameworks; each module needs only its own framework."""
