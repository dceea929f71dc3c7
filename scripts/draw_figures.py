"""Draw the pictures for the README and the site in Chromium, for light and dark pages: entities
with confidences, and part of a report.

"Paper" is the background around the content of a picture. It is cropped.
"""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import spacy
import typer
from PIL import Image, ImageChops, ImageOps
from spacy import displacy
from spacy.tokens import Doc
from spacy.training import Corpus

from spacy_costner.cli.report import report_page
from spacy_costner.workflows.reports.reporting import report

SCHEMES = {"": 1, "_dark": 0}
"""The suffixes of file names, and Chromium's numbers for the colour schemes."""

WITHOUT_PAPER = """
:root { color-scheme: light dark }
body { color: CanvasText; background: transparent }
mark { color: black }
"""
HIDDEN = "header, nav, footer, .facts, section:not(#curve) { display: none }"
TEXT = (
    "Alierta, presidente de Telefónica, viajó de La Coruña a Bruselas para reunirse con Romano "
    "Prodi. El juez Baltasar Garzón interrogó ayer a los directivos de Ausbanc en Valencia."
)
COLORS = {"PER": "#aa9cfc", "ORG": "#7aecec", "LOC": "#ff9561", "MISC": "#ddd"}


def main(
    model: Path, corpus: Path, output: Path, text: str | None = None, browser: str = "chromium"
) -> None:
    """Write entities.png for a text and report.png for MODEL on CORPUS to the folder OUTPUT, and
    the versions for dark pages, entities_dark.png and report_dark.png."""
    nlp = spacy.load(model)
    html = entities_page(nlp(text or TEXT))
    draw(html, output, "entities", browser, width=800)
    result = report(nlp, Corpus(corpus)(nlp), n_mistakes=2)
    html = report_page(result).replace("</style>", f"{HIDDEN}</style>")
    # The page's policy forbids modified style sheets.
    html = html.replace("Content-Security-Policy", "none")
    draw(html, output, "report", browser, width=1000)


def entities_page(doc: Doc) -> str:
    """Render a displaCy page with the entities of a doc, their labels and confidences."""
    ents: list[dict[str, Any]] = []
    colors: dict[str, str] = {}
    for ent in doc.ents:
        label = f"{ent.label_}\u00a0{ent._.confidence:.2f}"
        ents.append({"start": ent.start_char, "end": ent.end_char, "label": label})
        colors[label] = COLORS.get(ent.label_, "#ddd")
    text_and_ents = {"text": doc.text, "ents": ents}
    html = displacy.render(
        text_and_ents, style="ent", manual=True, page=True, options={"colors": colors}
    )
    # An entity and its label stay on one line.
    html = html.replace('style="background', 'style="white-space: nowrap; background')
    return html.replace("</head>", f"<style>{WITHOUT_PAPER}</style></head>")


def draw(html: str, output: Path, name: str, browser: str, *, width: int) -> None:
    """Save a page as pictures for light and dark pages, without the surrounding paper. A page
    without paper stays transparent."""
    with TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(html, encoding="utf8")
        options = "--headless --no-sandbox --hide-scrollbars --log-level=3"
        options += f" --default-background-color=00000000 --window-size={width},2500"
        for end, scheme in SCHEMES.items():
            picture = output / f"{name}{end}.png"
            command = [browser, *options.split(), f"--screenshot={picture}"]
            command += [f"--blink-settings=preferredColorScheme={scheme}", page.as_uri()]
            subprocess.run(command, check=True)

            image = Image.open(picture).convert("RGBA")
            # Crop the background, which has the colour of the first pixel, and add a border.
            paper: Any = image.getpixel((0, 0))
            empty_image = Image.new("RGBA", image.size, paper)
            difference = ImageChops.difference(image, empty_image)
            image = image.crop(difference.getbbox(alpha_only=False))
            image = ImageOps.expand(image, border=20, fill=paper)
            image.quantize(256, method=Image.Quantize.FASTOCTREE).save(picture, optimize=True)


if __name__ == "__main__":
    typer.run(main)
