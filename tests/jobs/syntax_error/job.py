# Broken on purpose: the worker must say where.
def model(:
    pass
