"""Builds the site into build/docs/html, in an environment of its own: .venv-docs.

    python tools/docs.py [--stage] [--shots] [--keep] [--linkcheck] [--notebooks] [--here]

Pages are staged first (build/docs/source): those of docs/, those of other folders that they link to, the
API reference, and the list of errors. Then Sphinx runs; a warning ends the build. `--stage` stops before
that. `--shots` takes pictures of five pages with Chromium into build/docs/shots, wide and narrow, light
and dark, and ends with an error if a page scrolls sideways on a phone; `--keep` does that, and puts five
of the pictures into docs/figures/site. `--linkcheck` asks each
address outside of the site whether it is there, which needs a network. `--notebooks` writes those that
Colab opens from their text form. `--here` uses the Python that runs this instead of .venv-docs.

BK_JAX_REPOSITORY, such as https://github.com/OWNER/NAME, gives pages a repository button and notebooks
a Colab button that opens them from there; `--notebooks` writes it into their first cell. Without it, a
notebook has a link to download it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import environments
from docsite.colab import repository, with_address
from docsite.links import OUT, SOURCE, stage_pages
from docsite.offline import check_offline
from environments import ROOT

LOCK = ROOT / "requirements-docs.lock"
VENV = ROOT / ".venv-docs"
HTML = OUT / "html"
NOTEBOOKS = ROOT / "docs" / "notebooks"
SITE_SHOTS = ROOT / "docs" / "figures" / "site"


def environment() -> dict[str, str]:
    """Variables under which bk_jax is found in the checkout, by Sphinx and by notebooks."""
    folders = os.pathsep.join(str(ROOT / name) for name in ("python", "tools"))
    return {
        "JAX_PLATFORMS": "cpu",
        **os.environ,
        "BK_JAX_ROOT": str(ROOT),
        "IPYTHONDIR": str(OUT / "ipython"),
        "PYTHONPATH": folders,
    }


def run(*command: str) -> None:
    """Runs a module in the site's environment, or where it is the one that runs this."""
    python = str(environments.python_of(VENV)) if "--here" not in sys.argv else sys.executable
    done = subprocess.run([python, *command], cwd=ROOT, env=environment(), check=False)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stage", action="store_true", help="write the pages and stop")
    parser.add_argument("--shots", action="store_true", help="pictures of five pages")
    parser.add_argument("--keep", action="store_true", help="the same, for docs/figures/site")
    parser.add_argument(
        "--linkcheck", action="store_true", help="look for dead links to other sites"
    )
    parser.add_argument(
        "--notebooks", action="store_true", help="write docs/notebooks/*.ipynb anew"
    )
    parser.add_argument("--here", action="store_true", help="use the Python that runs this")
    arguments = parser.parse_args()
    if not arguments.here:
        environments.make_environment(VENV, LOCK)
    if arguments.notebooks:
        texts = [str(path) for path in sorted(NOTEBOOKS.glob("*.md"))]
        run("-m", "jupytext", "--quiet", "--to", "ipynb", *texts)
        for path in NOTEBOOKS.glob("*.ipynb"):
            path.write_text(with_address(path.read_text(), repository()))
        return
    stage_pages()
    run("-m", "docsite.reference", str(SOURCE))
    run("-m", "docsite.errors", str(SOURCE))
    if arguments.stage:
        return
    doctrees = str(OUT / "doctrees")
    strict = ("-q", "-W", "--keep-going")
    run("-m", "sphinx", *strict, "-d", doctrees, "-b", "html", str(SOURCE), str(HTML))
    check_offline(HTML)
    print(f"the site: {(HTML / 'index.html').relative_to(ROOT)}")
    if arguments.linkcheck:
        run(
            "-m", "sphinx", "-q", "-d", doctrees, "-b", "linkcheck", str(SOURCE), str(OUT / "links")
        )
    if arguments.shots or arguments.keep:
        kept = [str(SITE_SHOTS)] if arguments.keep else []
        run("-m", "docsite.shots", str(HTML), str(OUT / "shots"), *kept)
        run("-m", "docsite.widths", str(HTML))


if __name__ == "__main__":
    main()
