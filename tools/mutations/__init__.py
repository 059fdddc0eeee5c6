"""Deliberately wrong variants of the project's rewrites, for `tools/mutants.py`: what each changes, and where it shows."""
