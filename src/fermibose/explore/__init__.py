"""The app, ``fbm explore``: what its notebook shows, as plain functions.

The notebook, ``notebook.py`` beside this file, only arranges sliders and pages.
"""
