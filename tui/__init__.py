"""The terminal app. Owns screens, widgets and keys; reads records, NVML and psutil, never torch."""
