"""Parts of tools/soak.py."""
