"""The proxy: the one way from a sandbox to the network."""
