"""A run from the call to the result: workspace, staging, inputs, packages, outputs."""
