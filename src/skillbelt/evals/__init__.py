"""Evaluations: is a skill found, do its scripts run, does it help."""
