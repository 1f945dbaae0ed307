"""The page: runs as one HTML file; program and style lie beside as .js, .css and .html."""

from evergraph.lab.page.data import page_data
from evergraph.lab.page.render import render_page, write_page

__all__ = ["page_data", "render_page", "write_page"]
