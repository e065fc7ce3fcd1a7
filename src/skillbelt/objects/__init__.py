"""Files by digest in an object store, available to every machine."""
