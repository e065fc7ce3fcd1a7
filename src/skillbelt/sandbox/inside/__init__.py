"""Programs that run inside a sandbox, above the command."""
