"""Suzuki, McDermott & Isozaki (2006): chunking and entities with ML, MAP, MCE and MCE-F."""
