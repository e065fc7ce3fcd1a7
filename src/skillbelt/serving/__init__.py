"""Serving over HTTP: the parts that both servers share, and the JSON API of `serve http`."""
