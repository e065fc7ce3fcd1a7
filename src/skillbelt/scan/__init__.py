"""What a skill can do, before it does it: capabilities, and findings about its text and code."""
