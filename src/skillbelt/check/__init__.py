"""The rules of the format, and the fixes for what breaks them."""
