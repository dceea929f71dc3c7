"""An annotation session as a web app and as a machine learning backend for Label Studio."""
