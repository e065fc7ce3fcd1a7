"""Histories as the packages of vendors have them: read, changed and written in their own shapes."""
