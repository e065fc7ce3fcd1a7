"""The sandboxes for Linux: bubblewrap, Landlock, the system-call filter, control groups."""
