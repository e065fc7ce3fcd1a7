"""The proxy: the only connection from a sandbox to the network."""
