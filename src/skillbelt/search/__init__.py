"""Search over the whole text of the skills: what is indexed, how it is kept, how it is ranked."""
