"""A trial of a skill: each of its scripts is started once in the sandbox, and judged."""
