"""Compares forecasters of any series, which are given nothing but the series, with those trained on a set."""
