"""The Open Inference Protocol over gRPC, in front of the same application."""
