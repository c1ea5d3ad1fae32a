"""One shard: a gRPC service that holds blocks of the model's parameters and applies updates to them."""
