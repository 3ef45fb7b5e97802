"""The second, independent engine: max-plus algebra instead of discrete events.

It reads the same resolved scenario and the same expanded primitives as the SimPy model and shares no code with it:
:mod:`turn` lays out one turn of the loop, :mod:`durations` prices it, :mod:`graph` makes the event graph of it,
:mod:`recurrence` evaluates that graph turn after turn, :mod:`steady` finds where it settles, :mod:`cycles` what
limits it there, and :mod:`screen` evaluates many scenarios at once. It answers fixed-batch questions: a batch whose
requests outlast the question, at a stated context, with central costs.
"""
