"""Draw the pictures of the README: a part of a report, in Chromium, and a reliability diagram."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import spacy
import typer
from PIL import Image, ImageOps
from spacy.training import Corpus

from spacy_costner.cli.plots import reliability_diagram, save
from spacy_costner.cli.report import page, report

HIDDEN = "nav, footer, .facts, #scores, #curve, #confidence, #model { display: none }"


def main(model: Path, corpus: Path, output: Path, browser: str = "chromium") -> None:
    """Write report.png and reliability.svg of MODEL on CORPUS to the folder OUTPUT."""
    nlp = spacy.load(model)
    result = report(nlp, Corpus(corpus)(nlp), n_mistakes=2)
    if not result.scores["ents_reliability"]:
        raise ValueError(f"{corpus}: expected predicted entities, got none")
    save(reliability_diagram(result.scores["ents_reliability"]), output / "reliability.svg")
    with TemporaryDirectory() as folder:
        html, picture = Path(folder) / "report.html", Path(folder) / "report.png"
        html.write_text(page(result).replace("</style>", f"{HIDDEN}</style>"), encoding="utf8")
        options = "--headless --no-sandbox --hide-scrollbars --log-level=3 --window-size=1000,2500"
        command = [browser, *options.split(), f"--screenshot={picture}", html.as_uri()]
        subprocess.run(command, check=True)
        image = Image.open(picture).convert("RGB")
    _, _, _, end = ImageOps.invert(image).getbbox() or (0, 0, *image.size)
    image = image.crop((0, 0, image.width, end + 40))
    image.quantize(256).save(output / "report.png", optimize=True)


if __name__ == "__main__":
    typer.run(main)
