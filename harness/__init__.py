"""The benchmark: data sets in, runs judged and timed, one result document out.

Everything that measures starts from a :class:`harness.datasets.Dataset`; everything that reports starts
from a result file and needs neither a provider nor a network.
"""
