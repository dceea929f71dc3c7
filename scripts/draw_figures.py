"""Draw the pictures of the README, in Chromium: entities with confidences; a part of a report."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import spacy
import typer
from PIL import Image, ImageOps
from spacy import displacy
from spacy.training import Corpus

from spacy_costner.analysis.report import report
from spacy_costner.cli.report import page

HIDDEN = "header, nav, footer, .facts, section:not(#curve) { display: none }"
TEXT = (
    "Alierta, presidente de Telefónica, viajó de La Coruña a Bruselas para reunirse con Romano "
    "Prodi. El juez Baltasar Garzón interrogó ayer a los directivos de Ausbanc en Valencia."
)
COLORS = {"PER": "#aa9cfc", "ORG": "#7aecec", "LOC": "#ff9561", "MISC": "#ddd"}


def main(
    model: Path, corpus: Path, output: Path, text: str | None = None, browser: str = "chromium"
) -> None:
    """Write entities.png of a text, and report.png of MODEL on CORPUS, to the folder OUTPUT."""
    nlp = spacy.load(model)
    doc = nlp(text or TEXT)
    ents = [
        {
            "start": ent.start_char,
            "end": ent.end_char,
            "label": f"{ent.label_}\u00a0{ent._.confidence:.2f}",
        }
        for ent in doc.ents
    ]
    colors = {ent["label"]: COLORS.get(str(ent["label"]).split()[0], "#ddd") for ent in ents}
    shown = {"text": doc.text, "ents": ents}
    html = displacy.render(shown, style="ent", manual=True, page=True, options={"colors": colors})
    html = html.replace('style="background', 'style="white-space: nowrap; background')
    draw(html, output / "entities.png", browser, width=800)
    result = report(nlp, Corpus(corpus)(nlp), n_mistakes=2)
    html = page(result).replace("</style>", f"{HIDDEN}</style>")
    draw(html, output / "report.png", browser, width=1000)


def draw(html: str, picture: Path, browser: str, *, width: int) -> None:
    """Save a page as a picture, without the white around it."""
    with TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(html, encoding="utf8")
        options = "--headless --no-sandbox --hide-scrollbars --log-level=3"
        command = [browser, *options.split(), f"--window-size={width},2500"]
        command += [f"--screenshot={picture}", page.as_uri()]
        subprocess.run(command, check=True)
    image = Image.open(picture).convert("RGB")
    image = ImageOps.expand(image.crop(ImageOps.invert(image).getbbox()), border=20, fill="white")
    image.quantize(256).save(picture, optimize=True)


if __name__ == "__main__":
    typer.run(main)
