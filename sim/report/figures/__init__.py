"""One file a figure: a function that takes numbers and returns a canvas."""
