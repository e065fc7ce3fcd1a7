"""Where a skill's commands run. All sandboxes share one contract and one list of attacks."""
