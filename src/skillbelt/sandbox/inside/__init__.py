"""Programs that run inside a sandbox, before and above the command."""
