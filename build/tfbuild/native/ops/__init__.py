"""The groups of fused ops: a folder each, with op.toml, sources and cases.py."""
