"""Search over the whole text of the skills: indexing, storage, ranking and confidence."""
