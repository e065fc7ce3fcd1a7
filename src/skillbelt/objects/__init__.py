"""Contents by digest in an object store, so that every machine can have them."""
