"""The decisions of the lead shard: pure state machines with no I/O, no clock and no threads.

Everything here is told what happened and when, and answers with entries of the ordered log.
"""
