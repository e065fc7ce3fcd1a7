"""Many machines: what a node can do, and the nodes of a cluster."""
