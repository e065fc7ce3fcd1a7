"""Safe use of a hostile file system: opening, hashing, locking, removing."""
