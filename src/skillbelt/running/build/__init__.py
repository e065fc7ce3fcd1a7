"""Skills with a source made into WASM components: `skillbelt build`."""
