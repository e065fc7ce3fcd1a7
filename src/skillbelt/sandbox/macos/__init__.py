"""The sandbox for macOS."""
