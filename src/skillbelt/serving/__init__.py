"""Serve over HTTP: what both servers share, and the JSON API of `serve http`."""
