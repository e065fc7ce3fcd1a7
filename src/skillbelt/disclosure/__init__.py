"""What a model sees of a skill: the overview, the body, single documents."""
