"""Where skills live: clients' folders, remote sources, trust, the index and the catalogue."""
