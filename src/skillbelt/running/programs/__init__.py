"""The programs of a run beside the system's, and hints about missing ones."""
