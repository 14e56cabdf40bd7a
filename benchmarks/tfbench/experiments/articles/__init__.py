"""The experiments of five articles: claims and measurements."""
