"""Processing before and after a forecaster of any series, in training and serving: decomposition, Theta, features.

A batch holds the series of equal length with the same seasons, as rows; NaN is a missing value.
"""
