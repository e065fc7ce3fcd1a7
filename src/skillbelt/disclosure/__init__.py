"""The texts that a model sees of a skill: the overview, the body, single documents."""
