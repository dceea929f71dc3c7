"""The compiled chain and sparse rows; without a compiler the package installs all the same."""

import os
import sys
from glob import glob

import numpy
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

KERNELS = "spacy_costner/chain/cpp/"
ON_WINDOWS = sys.platform == "win32"
FLAGS = ["/std:c++17", "/O2"] if ON_WINDOWS else ["-std=c++17", "-O3", "-g0"]
LINK_FLAGS = [] if ON_WINDOWS else ["-pthread"]
if "SANITIZE" in os.environ:  # see `make sanitize`; one instruction set, which builds sooner
    LINK_FLAGS += ["-fsanitize=address,undefined"]
    FLAGS += [*LINK_FLAGS, "-fno-omit-frame-pointer", "-O1", "-g1", "-DON_X86=0"]

native = Extension(
    "spacy_costner.chain.native",
    sources=["spacy_costner/chain/native.pyx", KERNELS + "kernels.cpp"],
    depends=[*glob(KERNELS + "*.hpp"), "spacy_costner/chain/native.pxd"],
    include_dirs=[numpy.get_include(), "spacy_costner/chain"],
    define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
    extra_compile_args=FLAGS,
    extra_link_args=LINK_FLAGS,
    language="c++",
    optional=True,
)

sparse = Extension(
    "spacy_costner.sparse.native",
    sources=["spacy_costner/sparse/native.pyx"],
    depends=glob("spacy_costner/sparse/*.hpp"),
    include_dirs=["spacy_costner/sparse"],
    extra_compile_args=FLAGS + ([] if ON_WINDOWS else ["-fno-math-errno"]),
    extra_link_args=LINK_FLAGS,
    language="c++",
    optional=True,
)


class BuildExt(build_ext):
    """Says what it means if compiled code can't be built. pip shows it with --verbose only."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception:
            self.warn(
                f"{ext.name} could not be compiled: see the reason below. spacy-costner is "
                "installed without it, runs slower array code, and warns once. `python -m spacy "
                "costner check` says whether it is there. Install a C++ compiler and try again."
            )
            raise


# configs/ is installed as spacy_costner/configs.
setup(
    packages=[*find_packages(include=["spacy_costner*"]), "spacy_costner.configs"],
    package_dir={"spacy_costner.configs": "configs"},
    ext_modules=[native, sparse],
    cmdclass={"build_ext": BuildExt},
)
