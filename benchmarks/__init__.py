"""Benchmarks: each module measures one part, against a floor or against other tools."""
