"""Convert traces to other packages' types; each package is imported in one file, and only when used."""
