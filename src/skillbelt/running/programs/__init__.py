"""The programs of a run beside the system's, and what is said about one that is missing."""
