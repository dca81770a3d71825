"""This host: processes, devices, hardware telemetry, network, environment.

Does not know configurations or runs.
"""
