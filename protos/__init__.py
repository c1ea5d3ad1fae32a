"""The contract: what workers, shards and tools say to each other, as protobuf files and the code generated from them.

`protos/generate.py` writes the generated modules; `protos/README.md` is the protocol's specification.
"""
