"""The WASM sandbox: modules, and scripts through interpreters built as components."""
