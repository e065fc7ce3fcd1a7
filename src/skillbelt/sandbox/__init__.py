"""Where a skill's commands run. Each sandbox keeps one contract, and passes one attack suite."""
