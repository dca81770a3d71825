"""Lay out charts as text: scales, ticks, smoothing, and a raster of Braille characters.

Plain Python without Textual. `widgets/plot_pane.py` adds styles and handles the mouse.
"""
