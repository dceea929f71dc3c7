"""Read and write the annotation of docs, and convert it to arrays."""
