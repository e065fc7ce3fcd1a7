"""The sandboxes for Linux: bubblewrap, Landlock, the seccomp filter, cgroups."""
