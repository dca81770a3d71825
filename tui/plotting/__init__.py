"""Lay out charts as text: scales, ticks, smoothing, and a raster of Braille characters.

Plain Python without Textual. `widgets/painted_chart.py` adds styles, and `widgets/plot_pane.py` the
mouse.
"""
