"""The documentation site: `make docs` builds it from this folder, and any warning is an error."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

project = "fermibose"
author = copyright = "The fermibose authors"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "docstrings",
    "gallery",
    "subscripts",
]

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3  # links to headings, as they work where the files are read without Sphinx
highlight_language = "none"  # an indented block is a formula or an output

napoleon_google_docstring = False
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autosummary_imported_members = True
templates_path = ["templates"]

html_theme = "pydata_sphinx_theme"
html_title = "fermibose"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_sidebars = {"index": [], "start": [], "gallery": []}  # pages without others below them
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
}
