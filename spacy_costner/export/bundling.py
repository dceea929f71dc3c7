"""Join our ES modules to one script: a page that is one file can't import others."""

import re
from importlib.resources import files

MODULES = files(__package__) / "javascript"
"""The folder of the modules."""

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+\.js)";\n', re.MULTILINE)
"""An import, with the names that are imported, and the module."""

EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
"""The word `export`, with the name of the function, class or constant after it."""

COMMENT = re.compile(r"^ */\*\*.*?\*/\n", re.MULTILINE | re.DOTALL)
"""Comments that describe functions and classes, /** ... */. A page doesn't need them. Comments
with licences, /*! ... */, stay."""


def module_names(entry: str) -> list[str]:
    """The names of the modules that a module needs, each after those that it imports itself.

    entry (str): The name of the module, such as "ner.js".
    RETURNS (list[str]): The names. The last one is the module's own.
    """
    names: list[str] = []

    def add(name: str) -> None:
        """Add a module after its imports."""
        if name not in names:
            for _, imported in IMPORT.findall(read_source(name)):
                add(imported)
            names.append(name)

    add(entry)
    return names


def read_source(name: str) -> str:
    """The text of a module, or of another file of their folder."""
    return (MODULES / name).read_text(encoding="utf8")


def bundle(entry: str) -> str:
    """Join a module and all that it imports to a script. Each module becomes a function that is
    called at once, so that names in two modules don't clash, and an object of what it exports.

    entry (str): The name of the module.
    RETURNS (str): The script, without the comments that describe functions and classes.
    """
    scripts: list[str] = []
    for name in module_names(entry):
        source = COMMENT.sub("", read_source(name))
        exports = EXPORT.findall(source)
        source = EXPORT.sub("", IMPORT.sub(_as_constants, source))
        returned = f"return {{ {', '.join(exports)} }};"
        scripts.append(f"const {_variable(name)} = (() => {{\n{source}\n{returned}\n}})();\n")
    return "".join(scripts)


def _as_constants(match: re.Match[str]) -> str:
    """An import as constants: `{ a, b as c }` becomes `{ a, b: c }`."""
    names, module = match.groups()
    return f"const {{{names.replace(' as ', ': ')}}} = {_variable(module)};\n"


def _variable(name: str) -> str:
    """The name of the variable that holds the exports of a module: ner_js for "ner.js"."""
    return name.replace(".", "_")
