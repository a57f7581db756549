"""Layers of a recorded pass that would read and write their maps more often than they need.

The kernels are imported only where there is a GPU; whatever stands in the way of one, the plain
operations do its work.
"""
