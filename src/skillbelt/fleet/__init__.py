"""Many machines: the capabilities of a node, and the nodes of a Ray cluster."""
