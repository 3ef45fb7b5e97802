"""Are shared buffers safe in a run? Conflicting accesses that nothing orders, found while the run goes.

``order``: what is ordered by what (program order of the host, streams, events), never by times.
``rows``: which rows and columns an access touched. ``rules``: harmful or benign, and why. ``check``: the three
together, fed by the machine and the loop; :class:`~sim.hazards.check.HazardCheck` is the way in.
"""
