"""The import time of a wheel."""
