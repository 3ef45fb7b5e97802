"""The ledger: published before/after pairs as scenario pairs, predicted and judged.

``schema``: a case file. ``edit``: one side of it as a resolved scenario. ``check``: what is wrong with it as a whole.
``verdict``: magnitude classes and when two changes agree. ``predict``: the one fit a case may have and the
prediction. ``ledger``: all cases as JSON, table, figure and report.
"""
