"""The packages that a skill's scripts need."""
