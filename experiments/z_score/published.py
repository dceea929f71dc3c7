"""The methods of the Z-score's paper, and its figures."""

Z, Z_100, Z_H, MM_H, CRF = "Z-score", "Z-score (100)", "Z-score (H)", "MM (H)", "CRF"
TRUE, ALL_O = "true HMM", "O for everything"

PAPER_1 = {
    3: {Z: (15.82, 0.88), Z_100: (15.91, 0.43), MM_H: (15.81, 5.63)},
    5: {Z: (10.10, 1.28), Z_100: (10.13, 0.63), MM_H: (10.02, 8.29)},
    7: {Z: (7.49, 1.80), Z_100: (7.58, 0.68), MM_H: (7.22, 10.68)},
    9: {Z: (4.99, 2.48), Z_100: (4.99, 0.69), MM_H: (4.94, 14.24)},
    11: {Z: (4.74, 3.29), Z_100: (4.78, 0.72), MM_H: (4.58, 16.03)},
}
"""The paper's table 1: by the number of symbols, test error in per cent and seconds."""

PAPER_2 = {
    "S1": {Z: 11.66, Z_H: 11.07, MM_H: 10.97, CRF: 12.01},
    "S2": {Z: 8.01, Z_H: 7.89, MM_H: 8.11, CRF: 8.29},
}
"""The paper's table 2: test error in per cent."""

PAPER_SECONDS = {"exact": 9465.34, "sampled": 607.45, "margin": 1043.16}
"""Section 6: the average running times with S1."""
