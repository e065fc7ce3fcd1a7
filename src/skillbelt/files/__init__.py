"""Everything that touches a hostile file system: opening, hashing, locking, removing."""
