"""What the recorded numbers mean: bottlenecks, stragglers, trends, comparisons.

Reads records and returns plain data and sentences. Does not measure and does not start processes:
`bench` measures, `records` stores.
"""
