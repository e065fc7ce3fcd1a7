"""The console: web pages for the people who are responsible for agents."""
