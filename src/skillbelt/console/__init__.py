"""The console: pages for people who answer for agents."""
