"""Processing before and after a forecaster of any series: decomposition, Theta, features. The same code trains and serves.

A batch holds the series of equal length with the same seasons, as rows; NaN is a missing value.
"""
