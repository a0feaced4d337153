"""How Sphinx builds the site; `make docs` stages the pages and calls it (tools/docs.py)."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(os.environ["BK_JAX_ROOT"])
REPOSITORY = os.environ.get("BK_JAX_REPOSITORY", "")  # https://github.com/OWNER/NAME, for buttons

project = "bk_jax"
author = "the bk_jax authors"
copyright = "the bk_jax authors, Apache License 2.0"  # noqa: A001
release = re.search(
    r'__version__ = "(.*)"', (ROOT / "python" / "bk_jax" / "__init__.py").read_text()
)[1]
version = release

extensions = ["myst_nb", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]

# Markdown
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "html_image"]
myst_heading_anchors = 4
myst_links_external_new_tab = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
python_maximum_signature_line_length = 78
toc_object_entries = False
smartquotes = False  # messages and code in prose are to be read, and searched, as they are

# Notebooks: executed once for each change of their text, and an error in one ends the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "docs" / "notebooks")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_execution_excludepatterns = []

# make docs DOCS=--linkcheck
linkcheck_ignore = [r"https://github\.com/OWNER/NAME"]
linkcheck_timeout = 20
linkcheck_workers = 4

# Looks
html_theme = "sphinx_book_theme"
html_title = f"bk_jax {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_copy_source = False
html_show_sourcelink = False
html_use_index = True
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
html_theme_options = {
    "show_navbar_depth": 1,
    "max_navbar_depth": 3,
    "show_toc_level": 2,
    "home_page_in_toc": False,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "navigation_with_keys": False,
    "article_footer_items": [],
    "navbar_persistent": [],  # the sidebar has a search box: no bar above it for a second one
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
if REPOSITORY:
    html_theme_options |= {"repository_url": REPOSITORY, "use_repository_button": True}
