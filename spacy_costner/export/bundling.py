"""Bundle ES modules into a single script, because a single-file page can't import other files."""

import re
from importlib.resources import files

MODULES = files(__package__) / "javascript"
"""The directory of the modules."""

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+\.js)";\n', re.MULTILINE)
"""An import, capturing the imported names and the module."""

EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
"""The keyword `export`, capturing the name of the following function, class or constant."""

COMMENT = re.compile(r"^ */\*\*.*?\*/\n", re.MULTILINE | re.DOTALL)
"""Comments that document functions and classes, /** ... */. They are removed from the page, unlike
license comments, /*! ... */."""


def module_names(entry: str) -> list[str]:
    """Return the names of a module and all modules it depends on, with dependencies first.

    entry (str): The name of the module, e.g. "ner.js".
    RETURNS (list[str]): The names. The last one is the module itself.
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
    """Return the text of a module, or of another file in the same directory."""
    return (MODULES / name).read_text(encoding="utf8")


def bundle(entry: str) -> str:
    """Bundle a module and its dependencies into a script. Each module is wrapped in an immediately
    invoked function that returns its exports, to avoid name clashes.

    entry (str): The name of the module.
    RETURNS (str): The script, without documentation comments.
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
    """Convert an import to constants: `{ a, b as c }` becomes `{ a, b: c }`."""
    names, module = match.groups()
    return f"const {{{names.replace(' as ', ': ')}}} = {_variable(module)};\n"


def _variable(name: str) -> str:
    """Return the name of the variable for a module's exports, e.g. ner_js for "ner.js"."""
    return name.replace(".", "_")
