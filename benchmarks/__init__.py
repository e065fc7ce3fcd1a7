"""How fast and how small discovery is, against a floor and against other readers of skills."""
