"""Histories of vendors' packages: read, changed and written in their own shapes."""
