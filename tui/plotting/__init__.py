"""How a chart becomes dots and words: scales, ticks, smoothing, a raster of Braille characters.

Plain Python without Textual: `widgets/plot.py` gives the result its styles and hears the mouse.
"""
