"""The page: runs as one HTML file; program and style lie beside as .js, .css and .html."""
