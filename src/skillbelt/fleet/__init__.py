"""Running skills on many machines."""
