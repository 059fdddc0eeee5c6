"""The parts that `tools/fuzz.py` runs: targets that make a case from a number, mutations, processes with limits, and
smaller cases of one fault.
"""
