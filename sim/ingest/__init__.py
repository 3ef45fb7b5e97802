"""From torch-profiler traces of a serving engine, and what else is known of the machine, to a program and a profile.

How a call flows: :mod:`kineto` reads one trace; :mod:`iterations` cuts it into decode iterations (:mod:`sections`
where nobody annotated them) and folds them; :mod:`pieces` reads the result through a :mod:`template`
(:mod:`sglang_dflash`, or :mod:`own` for traces of this package); :mod:`deflate` and :mod:`host_state` remove what
profiling and the boot's state add; :mod:`assemble` and :mod:`device` make costs and operations of it;
:mod:`pipeline` does all of it, and :mod:`check` holds the result against what it came from.
"""
