"""What host components and built skills are made of. Nothing here is run by the runtime itself."""
