"""Parts of linear models as versions before wrote them."""

import zlib

import numpy
import srsly

from spacy_costner.ml import SparseWeights


def weights_up_to_0_3(weights: SparseWeights) -> bytes:
    """Weights as they were saved up to 0.3.0: floats of 16 bits."""
    rows = weights.rows
    used_rows = numpy.flatnonzero(rows.any(axis=1)).astype("int32")
    scale = float(numpy.abs(rows).max())
    return srsly.msgpack_dumps(
        {
            "n_features": weights.n_features,
            "n_tags": weights.n_tags,
            "scale": scale,
            "used": used_rows.tobytes(),
            "weights": (rows[used_rows] / scale).astype("<f2").tobytes(),
        }
    )


def pack_up_to_0_3(numbers: numpy.ndarray) -> bytes:
    """Whole numbers as they were saved up to 0.3.0: differences, compressed number by number."""
    return zlib.compress(numpy.diff(numbers, prepend=0).astype("<i4").tobytes())
