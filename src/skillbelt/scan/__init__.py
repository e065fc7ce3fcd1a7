"""Scan a skill before it runs: its capabilities, and findings about its text and code."""
