"""Try a skill: start each of its scripts once in the sandbox, and judge the result."""
