"""Skills from elsewhere: fetched, locked, put in place, compared with the lock, updated."""
