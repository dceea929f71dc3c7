"""Builds the extension modules, the chain and sparse weights. The rest is in setup.cfg."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from itertools import chain
from typing import Any

import numpy
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

KERNELS = "spacy_costner/chain/cpp/"
ON_WINDOWS = sys.platform == "win32"
FLAGS = ["/std:c++17", "/O2"] if ON_WINDOWS else ["-std=c++17", "-O3", "-g0"]
LINK_FLAGS = [] if ON_WINDOWS else ["-pthread"]
# What Cython makes of chain/native.pyx only calls the kernels, so it needs no more optimization.
FLAGS_OF_SOURCES = {} if ON_WINDOWS else {"spacy_costner/chain/native.cpp": ["-O1"]}
if "SANITIZE" in os.environ:  # see `make sanitize`; one instruction set, which builds sooner
    LINK_FLAGS += ["-fsanitize=address,undefined"]
    FLAGS += [*LINK_FLAGS, "-fno-omit-frame-pointer", "-O1", "-g1", "-DON_X86=0"]

native = Extension(
    "spacy_costner.chain.native",
    sources=[
        *(f"{KERNELS}{name}.cpp" for name in ("avx2", "baseline", "chain", "kernels")),
        "spacy_costner/chain/native.pyx",
    ],
    depends=[*glob(KERNELS + "*.hpp"), "spacy_costner/chain/native.pxd"],
    include_dirs=[numpy.get_include(), "spacy_costner/chain"],
    define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
    extra_compile_args=FLAGS,
    extra_link_args=LINK_FLAGS,
    language="c++",
)

sparse = Extension(
    "spacy_costner.sparse.native",
    sources=["spacy_costner/sparse/native.pyx"],
    depends=glob("spacy_costner/sparse/*.hpp"),
    include_dirs=["spacy_costner/sparse"],
    # Without errno a square root, of AdaGrad, is an instruction and not a call.
    extra_compile_args=FLAGS + ([] if ON_WINDOWS else ["-fno-math-errno"]),
    extra_link_args=LINK_FLAGS,
    language="c++",
)


class BuildExt(build_ext):
    """Compiles all sources side by side. Without a compiler it says what to do."""

    def build_extensions(self) -> None:
        compile_source = self.compiler.compile
        pool = ThreadPoolExecutor(os.cpu_count())

        def compile_sources(sources: list[str], **settings: Any) -> list[str]:
            """Compile the sources of an extension, and return the paths of the object files."""

            def compile_one(path: str) -> list[str]:
                flags = [*settings["extra_postargs"], *FLAGS_OF_SOURCES.get(path, ())]
                return compile_source([path], **{**settings, "extra_postargs": flags})

            return list(chain.from_iterable(pool.map(compile_one, sources)))

        self.compiler.compile = compile_sources
        self.parallel = len(self.extensions)
        try:
            super().build_extensions()
        except Exception as error:
            raise SystemExit(
                f"{error}\nspacy-costner has to be compiled: install a C++17 compiler and the "
                "headers of Python (Debian and Ubuntu: apt install g++ python3-dev), and try again."
            ) from error


# configs/ is installed as spacy_costner/configs.
setup(
    packages=[*find_packages(include=["spacy_costner*"]), "spacy_costner.configs"],
    package_dir={"spacy_costner.configs": "configs"},
    ext_modules=[native, sparse],
    cmdclass={"build_ext": BuildExt},
)
