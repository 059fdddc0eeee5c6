"""The conformance suites that others wrote, and what runs them: the parts of ``tools/conformance.py``."""
