"""The container sandbox: Docker or Podman."""
