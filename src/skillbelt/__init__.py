"""skillbelt: the Agent Skills runtime."""
